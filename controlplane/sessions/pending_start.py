"""A start under way, and all those of this control plane by account and session id.

The mark that a session is to be stopped is in its row, where every commit of a start reads it.
What is here wakes tasks: a start that waits for a host, and calls that wait for the end of one.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from controlplane.domain.contract import SessionSpec
from controlplane.domain.errors import (
    AgentRefusedError,
    ConflictError,
    NoCapacityCause,
    NoCapacityError,
    TiltyardError,
)
from controlplane.domain.placement import Wanted
from controlplane.domain.start_timing import StartTiming
from controlplane.fleet.queue import Ask
from controlplane.fleet.room_forecast import RETRY_AFTER
from controlplane.sessions.start_request import StartRequest
from controlplane.storage.engine.store import Actor
from controlplane.storage.tables.sessions import Attempt, NewSession, Session


@dataclass(slots=True, eq=False)
class PendingStart:
    """A start under way, from the arrival of its request."""

    actor: Actor
    request: StartRequest
    account: str
    id: str
    """The id that its row begins with; the row keeps it, as its id or as its alias."""
    deadline: float
    patience: float
    """Seconds that its caller waits in all."""
    timing: StartTiming = field(default_factory=StartTiming)
    spec: SessionSpec = field(init=False)
    """This, `node_pool` and `wanted` are set once application and tag are known."""
    node_pool: str = field(init=False)
    wanted: Wanted = field(init=False)
    no_tag: TiltyardError | None = None
    """Why it cannot start cold; a ready standby serves it all the same."""
    stop_wanted: bool = False
    """A DELETE waits for it: no further host is tried."""
    is_stopped: bool = False
    """Its row is marked to be stopped: its caller does not get a session."""
    has_row: bool = False
    """Its id and quota are taken."""
    decided: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it has a row, or ended without one."""
    ask: Ask | None = None
    """The newest, which may still wait for a host."""
    attempt: Attempt | None = None
    """The attempt under way, or what it became: the one that may have come to something."""
    attempted: bool = False
    """There was an attempt, so that the audit knows of the session."""
    refused: bool = False
    """Nothing came of the attempt under way: its host said so, or was not called."""
    failure: AgentRefusedError | None = None
    """Why the newest host that failed for a reason other than room did so."""
    outcome: str | None = None
    """The internal id of the session that it became."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def key(self) -> tuple[str, str]:
        """The account, and the id that the session has in the database."""
        return self.spec.identity.account, self.spec.identity.session_id

    @property
    def location(self) -> str:
        """The region."""
        return self.spec.identity.location

    def row(self, now_ms: int) -> NewSession:
        """Give what the database keeps of it from its beginning, which is now."""
        identity = self.spec.identity
        return NewSession(
            account=identity.account,
            id=identity.session_id,
            application=identity.application,
            tag=identity.tag,
            location=identity.location,
            labels=identity.labels,
            external_id=identity.external_id,
            reservation=self.spec.reservation,
            created_ms=now_ms,
        )

    def be_called(self, session_id: str) -> None:
        """Have another id from now on."""
        identity = replace(self.spec.identity, session_id=session_id)
        self.spec = replace(self.spec, identity=identity)

    def no_capacity(
        self, cause: NoCapacityCause, why: str, retry_after: int = RETRY_AFTER
    ) -> NoCapacityError:
        """Make the error of a start that no host can take."""
        return NoCapacityError(self.location, why, retry_after, cause)

    @contextmanager
    def naming_failures(self) -> Iterator[None]:
        """Have an error say why hosts failed, unless it was for lack of room."""
        try:
            yield
        except NoCapacityError as error:
            if self.failure is None:
                raise
            why = f"the hosts that were asked failed, the last one by {self.failure}"
            raise self.no_capacity(NoCapacityCause.HOSTS_FAILED, why) from error


class PendingStarts:
    """Finds starts under way by account and by the id that their rows begin with."""

    def __init__(self) -> None:
        self._starts: dict[tuple[str, str], PendingStart] = {}

    def get(self, account: str, session_id: str) -> PendingStart | None:
        """Return the start of an id."""
        return self._starts.get((account, session_id))

    def of_row(self, session: Session) -> PendingStart | None:
        """Return the start that made a row; a claim may have renamed the row since."""
        for name in (session.id, session.alias):
            start = self.get(session.account, name or "")
            if start is not None and start.has_row:
                return start
        return None

    def add(self, start: PendingStart) -> None:
        """Take in a start whose request has arrived.

        Raises:
            ConflictError: Another start of the id is under way.
        """
        if self._starts.setdefault((start.account, start.id), start) is not start:
            raise ConflictError("the session id is in use")

    def note_row(self, start: PendingStart) -> None:
        """Note that a start has a row."""
        start.has_row = True
        start.decided.set()

    def settle(self, start: PendingStart) -> None:
        """Forget a start and wake the calls that wait for its outcome."""
        del self._starts[start.account, start.id]
        start.decided.set()
        start.settled.set()
