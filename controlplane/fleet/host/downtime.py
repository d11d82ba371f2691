"""The last report and the downtime of one host, kept across restarts of the control plane.

Time in which the control plane is down or stalled does not count. After `lost_after` seconds the
host and its sessions are given up as lost.
"""

from dataclasses import dataclass, field

from controlplane.domain.errors import StoreError
from controlplane.domain.hosts.written import Written
from controlplane.fleet.host.state import HostState
from controlplane.storage.engine.store import Store, rest
from controlplane.storage.tables.hosts.contact import lose, note_downtime, note_report
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

WRITE_INTERVAL = 60.0
"""Seconds between two writes per host: a crash loses up to that much downtime."""

LONGEST_GAP = 30.0
"""Maximum seconds that count between two tries: a longer gap is a stall of this program."""


@dataclass(slots=True)
class Downtime:
    """Counts the seconds without a report of one host."""

    host: HostState
    store: Store
    lost_after: float
    clock: Clock
    _seconds: float = field(init=False)
    _stored: float = field(init=False)
    _counted_at: float = field(init=False, default=0.0)
    _written_at: float = field(init=False, default=float("-inf"))

    def __post_init__(self) -> None:
        self._seconds = self._stored = self.host.row.downtime

    def begin(self) -> None:
        """Start counting."""
        self._counted_at = self.clock.monotonic()

    async def reported(self, written: Written) -> None:
        """Restart from 0. The end of a stored downtime is stored first.

        Raises:
            StoreError: It cannot be stored.
        """
        now = self._counted_at = self.clock.monotonic()
        self._seconds = 0.0
        if self._stored or self.host.lost is not None:
            await self.store_report(written)
            log.info("reports again")
        elif now - self._written_at >= WRITE_INTERVAL:
            try:
                await self.store_report(written)
            except StoreError as error:
                log.warning("cannot store the last report of a host", error=str(error))

    async def missed(self) -> None:
        """Count the time since the last report or failed try."""
        now = self.clock.monotonic()
        self._seconds += min(now - self._counted_at, LONGEST_GAP)
        self._counted_at = now
        if self.host.lost is not None:
            return
        try:
            if self._seconds >= self.lost_after:
                await self._lose()
            elif self._seconds - self._stored >= WRITE_INTERVAL:
                wall = self.clock.time()
                await self.store.run(note_downtime, self.host.name, self._seconds, wall)
                self._stored = self._seconds
        except StoreError as error:
            log.warning("cannot store the downtime of a host", error=str(error))

    async def store_report(self, written: Written) -> None:
        """Store that the host has reported now, and which of its reports are in rows.

        Raises:
            StoreError: It cannot be stored.
        """
        self._written_at = self.clock.monotonic()
        await self.store.run(note_report, self.host.name, self.clock.time(), written)
        self._stored = 0.0
        self.host.find()

    async def _lose(self) -> None:
        now = self.clock.time()
        began = self.clock.monotonic()
        while not await self.store.run(lose, self.host.name, self.host.under_way, now):
            await rest(self.clock, began)
            began = self.clock.monotonic()
        self.host.lose(now)
        log.warning("host lost, its sessions are dead", seconds=self.lost_after)
