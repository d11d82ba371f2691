"""The starts under way in this control plane, found by the ids of their sessions.

The mark that a session is to be stopped is in its row, where every commit of a start reads it.
What is here wakes tasks: a start that waits for a host, and calls that wait for the end of one.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from controlplane.domain.contract import HostSession
from controlplane.domain.errors import RETRY_AFTER, ConflictError, NoCapacityCause, NoCapacityError
from controlplane.domain.start_timing import StartTiming
from controlplane.fleet.queue import Ask
from controlplane.sessions.start_request import StartRequest
from controlplane.storage.engine.store import Actor
from controlplane.storage.tables.session_rows import Attempt


@dataclass(slots=True, eq=False)
class Trial:
    """The host's attempt, or the standby, that the row of a start names."""

    attempt: Attempt
    release: Callable[[], None]
    """Returns what it holds of its host, to be called once the row does not name it any more."""
    is_unanswered: bool = False
    """Its host was called and has not said that nothing came of it."""


@dataclass(slots=True, eq=False)
class Start:
    """A start under way, from the arrival of its request. `start.py` alone changes it."""

    actor: Actor
    account: str
    request: StartRequest
    deadline: float
    timing: StartTiming
    id: str
    """The id that was asked for; without one the id of its row, "" before it has a row."""
    has_row: bool = False
    """Its id and quota are taken."""
    trial: Trial | None = None
    """What its row names, until that is confirmed or off the row."""
    is_recorded: bool = False
    """The audit has the session under the id of its row."""
    ask: Ask | None = None
    """The newest, which may still wait for a host."""
    stop_wanted: bool = False
    """A DELETE waits for it: no further host is tried."""
    is_stopped: bool = False
    """Its row is marked to be stopped: its caller does not get a session."""
    decided: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it has a row, or ended without one."""
    session: HostSession | None = None
    """What it became."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def no_capacity(
        self, cause: NoCapacityCause, why: str, retry_after: int = RETRY_AFTER
    ) -> NoCapacityError:
        """Make the error of a start that no host can take."""
        return NoCapacityError(self.request.location, why, retry_after, cause)


class StartsUnderWay:
    """Finds starts by account and id; by an id that was asked for from the beginning."""

    def __init__(self) -> None:
        self._starts: dict[tuple[str, str], Start] = {}

    def get(self, account: str, session_id: str) -> Start | None:
        """Return the start of an id."""
        return self._starts.get((account, session_id))

    def add(self, start: Start) -> None:
        """Take in a start whose request has arrived.

        Raises:
            ConflictError: Another start of the id is under way.
        """
        if start.id and self._starts.setdefault((start.account, start.id), start) is not start:
            raise ConflictError("the session id is in use")

    def note_row(self, start: Start, session_id: str) -> None:
        """Note that a start has a row of this id, in place of any other."""
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
