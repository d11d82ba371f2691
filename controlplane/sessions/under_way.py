"""Starts under way in this control plane, by session id.

The stop mark is in the session's row, where every commit of a start reads it. This module only
wakes tasks: starts that wait for a host, and calls that wait for a start.
"""

import asyncio
from dataclasses import dataclass, field

from controlplane.domain.errors import (
    RETRY_AFTER,
    AgentRefusedError,
    AgentUnavailableError,
    ConflictError,
    HostsUnresponsiveError,
    NoCapacityCause,
    NoCapacityError,
    StoppedDuringStartError,
)
from controlplane.domain.hosts.contract import HostSession
from controlplane.domain.sessions.start_timing import StartTiming
from controlplane.fleet.queue import PendingAttempt
from controlplane.sessions.start_request import StartRequest
from controlplane.sessions.start_row import StartRow


@dataclass(slots=True, eq=False)
class Start:
    """A start under way, from the arrival of its request."""

    request: StartRequest
    deadline: float
    timing: StartTiming
    row: StartRow
    decided: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it has a row, or has ended without one."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    session: HostSession | None = None
    """The session of a start that has succeeded."""
    failure: AgentRefusedError | AgentUnavailableError | None = None
    """Why the last host failed that did not just lack room."""
    _pending: PendingAttempt | None = field(default=None, init=False)
    """The newest attempt that waited for a host, and may still wait."""
    _is_called_off: bool = field(default=False, init=False)
    """True if a DELETE waits for the start: no further host is tried."""
    _is_marked: bool = field(default=False, init=False)

    @property
    def account(self) -> str:
        """The account of the session."""
        return self.row.account

    @property
    def id(self) -> str:
        """The requested id, else that of the row; "" before there is one."""
        return self.row.id

    @property
    def has_row(self) -> bool:
        """True if the id and the quota are held."""
        return self.row.exists

    @property
    def is_marked(self) -> bool:
        """True if the row has the stop mark: the caller gets no session."""
        return self._is_marked

    def mark(self) -> None:
        """Note that the row has the stop mark."""
        self._is_marked = True

    def call_off(self) -> PendingAttempt | None:
        """Note that a DELETE waits for the start; return the request that may be queued."""
        self._is_called_off = True
        return self._pending

    def wait_with(self, attempt: PendingAttempt) -> None:
        """Note the request with which the start waits for a host."""
        self._pending = attempt

    def check(self) -> None:
        """Raise StoppedDuringStartError if the start was called off."""
        if self._is_called_off:
            raise StoppedDuringStartError

    def no_capacity(
        self, cause: NoCapacityCause, why: str, retry_after: int = RETRY_AFTER
    ) -> NoCapacityError:
        """Make the error of a start that no host can take."""
        return NoCapacityError(self.request.location, why, retry_after, cause)

    def failed(self) -> NoCapacityError:
        """Make the error of a start whose hosts have failed or did not answer."""
        if isinstance(self.failure, AgentRefusedError):
            why = f"the hosts failed, the last one with {self.failure}"
            return self.no_capacity(NoCapacityCause.HOSTS_FAILED, why)
        why = "the hosts do not answer in time"
        return HostsUnresponsiveError(self.request.location, why, RETRY_AFTER)


class StartsUnderWay:
    """Starts by account and id; requested ids are known from the beginning."""

    def __init__(self) -> None:
        self._starts: dict[tuple[str, str], Start] = {}
        self._ids: dict[Start, str] = {}

    def get(self, account: str, session_id: str) -> Start | None:
        """Return the start of an id."""
        return self._starts.get((account, session_id))

    def add(self, start: Start) -> None:
        """Add a start whose request has arrived.

        Raises:
            ConflictError: Another start of the id is under way.
        """
        if start.id and not self._enter(start):
            raise ConflictError("the session id is in use")

    def note_row(self, start: Start) -> None:
        """Note that a start has a row, under the id of the row from now on."""
        if self._ids.get(start) != start.id:
            self._drop(start)
            self._enter(start)
        start.decided.set()

    def end(self, start: Start) -> None:
        """Forget a start and wake the calls that wait for it."""
        self._drop(start)
        start.decided.set()
        start.ended.set()

    def _enter(self, start: Start) -> bool:
        """Enter a start under its id; return whether the id was free."""
        if self._starts.setdefault((start.account, start.id), start) is not start:
            return False
        self._ids[start] = start.id
        return True

    def _drop(self, start: Start) -> None:
        session_id = self._ids.pop(start, None)
        if session_id is not None:
            del self._starts[start.account, session_id]
