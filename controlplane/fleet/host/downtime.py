"""For how long one host was silent while this control plane listened, over its restarts.

It is counted by the monotonic clock from one try to reach the host to the next, and written now
and then. What passes while nobody listens, since the control plane is down or stands still, is not
the host's silence. After `lost_after` seconds of it what lives there is given up.
"""

from dataclasses import dataclass, field

from controlplane.domain.errors import StoreError
from controlplane.fleet.host.state import HostState
from controlplane.storage.tables.hosts import HostStore
from tiltyard.runtime.clock import Clock, unix_ms
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

WRITE_INTERVAL = 60.0
"""Seconds between two writes of a host: so much of its silence may a crash forget."""

LONGEST_GAP = 30.0
"""Two tries follow each other within 10 s; with more between them, this program stood still."""


@dataclass(slots=True)
class HostSilence:
    """Counts the silence of one host."""

    host: HostState
    store: HostStore
    lost_after: float
    clock: Clock
    _seconds: float = field(init=False)
    _stored: float = field(init=False)
    _listened_at: float = field(init=False, default=0.0)
    _written_at: float = field(init=False, default=float("-inf"))

    def __post_init__(self) -> None:
        self._seconds = self._stored = self.host.row.silent_ms / 1000

    def begin(self) -> None:
        """Listen from now on."""
        self._listened_at = self.clock.monotonic()

    async def heard(self) -> None:
        """Start counting again. If silence was stored, its end is stored before anything else.

        Raises:
            StoreError: It cannot be written.
        """
        now = self._listened_at = self.clock.monotonic()
        self._seconds = 0.0
        if self._stored or self.host.lost_ms is not None:
            await self._write_heard(now)
            log.info("heard again", agent=self.host.name)
        elif now - self._written_at >= WRITE_INTERVAL:
            try:
                await self._write_heard(now)
            except StoreError as error:
                log.warning("cannot note it as heard", agent=self.host.name, error=str(error))

    async def missed(self) -> None:
        """Count what has passed since the host was heard, or was tried to be reached before."""
        now = self.clock.monotonic()
        self._seconds += min(now - self._listened_at, LONGEST_GAP)
        self._listened_at = now
        if self.host.lost_ms is not None:
            return
        try:
            if self._seconds >= self.lost_after:
                await self._lose()
            elif self._seconds - self._stored >= WRITE_INTERVAL:
                await self.store.count_silence(self.host.name, int(self._seconds * 1000))
                self._stored = self._seconds
        except StoreError as error:
            log.warning("cannot count its silence", agent=self.host.name, error=str(error))

    async def _write_heard(self, now: float) -> None:
        self._written_at = now
        await self.store.note_heard(self.host.name, unix_ms(self.clock))
        self._stored, self.host.lost_ms = 0.0, None

    async def _lose(self) -> None:
        now_ms = unix_ms(self.clock)
        await self.store.lose(self.host.name, self.host.under_way, now_ms)
        self.host.lose(now_ms)
        log.warning(
            "lost, and its sessions with it", agent=self.host.name, seconds=self.lost_after
        )
