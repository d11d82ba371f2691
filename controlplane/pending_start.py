"""A start under way, and all those of the control plane by the names that callers know them by."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from controlplane.errors import (
    AgentRefusedError,
    ConflictError,
    NoCapacityCause,
    NoCapacityError,
    TiltyardError,
)
from controlplane.fleet.contract import SessionSpec
from controlplane.fleet.host_queue import Ask
from controlplane.fleet.placement import Wanted
from controlplane.fleet.room_forecast import RETRY_AFTER
from controlplane.start_request import StartRequest
from controlplane.start_timing import StartTiming
from controlplane.storage.session_store import Attempt, NewSession
from controlplane.storage.store import Actor


@dataclass(slots=True, eq=False)
class PendingStart:
    """A start under way."""

    actor: Actor
    request: StartRequest
    spec: SessionSpec
    node_pool: str
    wanted: Wanted
    deadline: float
    patience: float
    """Seconds that its caller waits in all."""
    timing: StartTiming = field(default_factory=StartTiming)
    no_tag: TiltyardError | None = None
    """Why it cannot start cold; a ready standby serves it all the same."""
    stop_wanted: bool = False
    """A DELETE came during the start: no further host is tried."""
    ask: Ask | None = None
    """The newest, which may still wait for a host."""
    attempt: Attempt | None = None
    """The attempt under way, or what it became: the one that may have come to something."""
    attempted: bool = False
    """There was an attempt, so that the audit knows of the session."""
    refused: bool = False
    """Nothing came of the attempt under way: its host said so before it began."""
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
        """Have an error say why hosts failed, where not the lack of room is the reason."""
        try:
            yield
        except NoCapacityError as error:
            if self.failure is None:
                raise
            why = f"the hosts that were asked failed, the last one by {self.failure}"
            raise self.no_capacity(NoCapacityCause.HOSTS_FAILED, why) from error


class PendingStarts:
    """Finds starts under way by account and id; one that changes its id has both meanwhile."""

    def __init__(self) -> None:
        self._starts: dict[tuple[str, str], PendingStart] = {}

    def get(self, account: str, session_id: str) -> PendingStart | None:
        """Give the start of a session."""
        return self._starts.get((account, session_id))

    def add(self, start: PendingStart) -> None:
        """Find a start by the id that it has now."""
        self._starts[start.key] = start

    def add_name(self, start: PendingStart, session_id: str) -> None:
        """Find a start by another id, too."""
        self._starts.setdefault((start.key[0], session_id), start)

    def drop_name(self, start: PendingStart, session_id: str) -> None:
        """Find a start by this id no more."""
        if self._starts.get((start.key[0], session_id)) is start:
            del self._starts[start.key[0], session_id]

    def settle(self, start: PendingStart) -> None:
        """Let those know who wait for what comes of a start."""
        self.drop_name(start, start.key[1])
        start.settled.set()


def stopped() -> ConflictError:
    """Make the error of a start that somebody stopped meanwhile."""
    return ConflictError("the session was stopped during its start")
