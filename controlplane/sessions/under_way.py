"""Starts under way in this control plane, by session id.

The stop mark is in the session's row, where every commit of a start reads it. This module only
wakes tasks: starts that wait for a host, and calls that wait for a start.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from controlplane.domain.contract import HostSession
from controlplane.domain.errors import RETRY_AFTER, ConflictError, NoCapacityCause, NoCapacityError
from controlplane.domain.start_timing import StartTiming
from controlplane.fleet.host.host import Host
from controlplane.fleet.queue import Ask
from controlplane.sessions.start_request import StartRequest
from controlplane.storage.engine.store import Actor
from controlplane.storage.tables.session_rows import Attempt


@dataclass(slots=True, eq=False)
class Trial:
    """The attempt or standby that the row of a start names."""

    host: Host
    attempt: Attempt
    release: Callable[[], None]
    """Releases its host's capacity; called when the row no longer names it."""
    is_unanswered: bool = False  # Its host was called and has not confirmed that nothing started


@dataclass(slots=True, eq=False)
class Start:
    """A start under way, from the arrival of its request. `start.py` alone changes it."""

    actor: Actor
    account: str
    request: StartRequest
    deadline: float
    timing: StartTiming
    id: str  # The requested id, else that of its row, "" before it has a row
    has_row: bool = False  # Its id and quota are held
    trial: Trial | None = None  # What its row names, until confirmed or removed
    is_recorded: bool = False  # The audit has the session under the id of its row
    ask: Ask | None = None  # The newest; it may still wait for a host
    stop_wanted: bool = False  # A DELETE waits for it: no further host is tried
    is_stopped: bool = False  # Its row has the stop mark: its caller gets no session
    decided: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it has a row, or ended without one."""
    session: HostSession | None = None  # Its outcome
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def no_capacity(
        self, cause: NoCapacityCause, why: str, retry_after: int = RETRY_AFTER
    ) -> NoCapacityError:
        """Make the error of a start that no host can take."""
        return NoCapacityError(self.request.location, why, retry_after, cause)


class StartsUnderWay:
    """Starts by account and id; requested ids are known from the beginning."""

    def __init__(self) -> None:
        self._starts: dict[tuple[str, str], Start] = {}

    def get(self, account: str, session_id: str) -> Start | None:
        """Return the start of an id."""
        return self._starts.get((account, session_id))

    def add(self, start: Start) -> None:
        """Add a start whose request has arrived.

        Raises:
            ConflictError: Another start of the id is under way.
        """
        if start.id and self._starts.setdefault((start.account, start.id), start) is not start:
            raise ConflictError("the session id is in use")

    def note_row(self, start: Start, session_id: str) -> None:
        """Record that a start has a row, under this id from now on."""
        if start.id != session_id:
            self._drop(start)
            start.id = session_id
            self._starts.setdefault((start.account, session_id), start)
        start.has_row = True
        start.decided.set()

    def end(self, start: Start) -> None:
        """Forget a start and wake the calls that wait for it."""
        self._drop(start)
        start.decided.set()
        start.ended.set()

    def _drop(self, start: Start) -> None:
        key = start.account, start.id
        if self._starts.get(key) is start:
            del self._starts[key]
