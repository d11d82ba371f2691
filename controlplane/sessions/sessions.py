"""Sessions: reading, players, stopping, logs, reports, artifacts. Starting is `start.py`."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from controlplane.admission.request_slots import release_request_slot
from controlplane.domain.access.audit import Actor
from controlplane.domain.access.callers import Caller
from controlplane.domain.errors import (
    AgentRefusedError,
    AgentUnavailableError,
    ArtifactTooLargeError,
    ConflictError,
    HostBusyError,
    HostUnavailableError,
    NotFoundError,
    TiltyardError,
)
from controlplane.domain.hosts.contract import LogPart
from controlplane.domain.hosts.session_report import SessionReport
from controlplane.domain.sessions.players import MostPlayers
from controlplane.domain.sessions.sessions import Session, SessionFilter
from controlplane.domain.sessions.status import DEFAULT_LIST, SessionStatus, shown_status
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.sessions.descriptions import MOST_BYTES, Description
from controlplane.sessions.start import Starts
from controlplane.sessions.under_way import Start
from controlplane.storage.engine.cache import Cache
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.sessions import session_lists
from controlplane.storage.tables.sessions.players import (
    describe,
    join,
    leave,
    leave_all,
    most_players,
)
from controlplane.storage.tables.sessions.sessions import read_session, request_stop
from tiltyard.contract import ErrorReason, State
from tiltyard.runtime.clock import Clock, timeout
from tiltyard.runtime.failpoints import Reach, no_failpoint
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

_Part = TypeVar("_Part")

STOP_WAIT = 11.0  # Seconds. DELETE answers within 12 s, commit and response included.

BUSY_RETRY_AFTER = 10
"""Retry-After in seconds for a busy host: as long as the caller has waited already."""

NOT_KILLED = (
    "SIGKILL did not end the game: the session becomes dead, start another one;"
    " the host keeps its ports until its process ends"
)
AT_ONCE = 500  # Sessions of a list shown per event-loop step: about 10 ms


@dataclass(frozen=True, slots=True)
class ShownSession:
    """A session with the status that callers see."""

    session: Session
    status: SessionStatus


class Sessions:
    """Use cases on existing sessions."""

    def __init__(
        self,
        *,
        store: Store,
        fleet: Fleet,
        starts: Starts,
        clock: Clock,
        stop_wait: float = STOP_WAIT,
        records_players: bool = True,
        reach: Reach = no_failpoint,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._starts = starts
        self._clock = clock
        self.stop_wait = stop_wait
        self._records_players = records_players
        self._reach = reach
        self._descriptions = Cache[Description](
            store.changes,
            {Topic.SESSION},
            most=MOST_BYTES,
            size_of=lambda description: description.size,
        )

    async def get(self, caller: Caller, session_id: str) -> ShownSession:
        """Read one session of the caller's account.

        Raises:
            NotFoundError: The account has no session with this id.
        """
        session = await self._store.look(read_session, caller.account, session_id)
        if session is None:
            raise NotFoundError("session", session_id)
        return self.shown(session)

    async def describe(
        self, caller: Caller, session_id: str, encode: Callable[[ShownSession, list[str]], bytes]
    ) -> bytes:
        """Return one session with its players in the order of joining, as `encode` encodes them.

        Raises:
            NotFoundError: The account has no session with this id.
        """
        key = caller.account, session_id
        known = self._descriptions.get(key)
        if known is not None and known.status is self._status(known.state, known.agent):
            return known.content
        with self._descriptions.reading(key) as keep:
            found = await self._store.look(describe, *key)
            if found is None:
                raise NotFoundError("session", session_id)
            session, players = found
            shown = self.shown(session)
            content = encode(shown, players)
            if session.id == session_id and not session.state.ended:
                keep(Description(session.agent, session.state, shown.status, content))
        return content

    async def join(self, caller: Caller, session_id: str, players: Sequence[str]) -> list[str]:
        """Add players to a session; return all joined, in the order of joining. Idempotent."""
        now = self._clock.time()
        actor = self._actor(caller)
        joined = await self._store.run(
            join, caller.account, session_id, players, actor=actor, now=now
        )
        await self._reach("players.joined")
        return joined

    async def leave(self, caller: Caller, session_id: str | None, players: Sequence[str]) -> int:
        """Remove players from a session and return how many are left in it. Idempotent.

        Without an id they leave every live session; the count is over those they left.
        """
        account = caller.account
        actor = self._actor(caller)
        now = self._clock.time()
        run = self._store.run
        if session_id is None:
            left = await run(leave_all, account, players, actor=actor, now=now)
        else:
            left = await run(leave, account, session_id, players, actor=actor, now=now)
        await self._reach("players.left")
        return left

    def _actor(self, caller: Caller) -> Actor | None:
        """Return the actor of events of players, None if no application may have them."""
        return caller.actor if self._records_players else None

    async def find(self, wanted: SessionFilter) -> AsyncGenerator[list[ShownSession], None]:
        """Read sessions, AT_ONCE at a time; without `ended_too` only those in DEFAULT_LIST."""
        async with aclosing(session_lists.find(self._store, wanted)) as portions:
            async for portion in portions:
                for first in range(0, len(portion), AT_ONCE):
                    shown = map(self.shown, portion[first : first + AT_ONCE])
                    yield [s for s in shown if wanted.ended_too or s.status in DEFAULT_LIST]

    async def stop(self, caller: Caller, session_id: str) -> None:
        """Stop a session and wait until it has ended or its host began to stop it.

        A start of that id under way is waited for and its session stopped.

        Raises:
            NotFoundError: The account has no session with this id.
            ConflictError: It has ended.
            HostUnavailableError: Its host does not answer; the stop is remembered.
        """
        deadline = self._clock.monotonic() + self.stop_wait
        name = session_id
        start = self._starts.under_way.get(caller.account, name)
        has_arrived = start is not None
        if start is not None:
            self._starts.call_off(start)
            await self._until(start.decided, deadline)
        if start is None or not start.has_row:
            found = await self._store.look(read_session, caller.account, name)
            if found is None and has_arrived:
                return  # the start left nothing
            if found is None:
                raise NotFoundError("session", name)
            if found.state.ended:
                raise ConflictError("the session has ended")
            # It may still be a start under way, under an id that was not requested.
            name = found.id
            start = self._starts.under_way.get(caller.account, found.id)
        session = await (
            self._mark(caller, name)
            if start is None or not start.has_row
            else self._stop_start(caller, start, deadline)
        )
        if session is None:
            return
        await self._reach("stop.requested")
        if session.internal_id is None:
            raise HostUnavailableError("the session is being started; the stop is remembered")
        if self.shown(session).status is SessionStatus.SERVER_UNREACHABLE:
            raise HostUnavailableError("the host is unreachable; the stop is remembered")
        await self._stop_on_host(session, deadline)

    async def _stop_start(self, caller: Caller, start: Start, deadline: float) -> Session | None:
        """Mark the row of a start, wait for its end, and return the live session it became."""
        marked = None
        if not start.ended.is_set():
            marked = await self._mark(caller, start.id)
            self._starts.call_off(start, is_marked=marked is not None)
            await self._until(start.ended, deadline)
        if start.session is None:
            return None
        if marked is None:
            return await self._mark(caller, start.id)
        session = await self._store.look(read_session, caller.account, start.id)
        return None if session is None or session.state.ended else session

    async def _mark(self, caller: Caller, name: str) -> Session | None:
        now = self._clock.time()
        return await self._store.run(
            request_stop, caller.account, name, actor=caller.actor, now=now
        )

    async def _until(self, reached: asyncio.Event, deadline: float) -> None:
        release_request_slot()
        try:
            async with timeout(deadline - self._clock.monotonic(), self._clock):
                await reached.wait()
        except TimeoutError as error:
            why = "the session is still starting; it is stopped once its outcome is known"
            raise HostUnavailableError(why) from error

    async def logs(
        self, caller: Caller, session_id: str, *, follow: bool
    ) -> AsyncGenerator[bytes, None]:
        """Open the log of a session, from its beginning. Closing the iterator ends it.

        Raises:
            NotFoundError: The account has no session with this id, or the log is gone.
        """
        found = await self.get(caller, session_id)
        host, internal_id = self._where(found, "log")
        return _translated(host.state.client.stream_logs(internal_id, follow=follow), session_id)

    async def log_from(
        self, caller: Caller, session_id: str, offset: int, *, follow: bool
    ) -> AsyncGenerator[LogPart, None]:
        """Open the log of a session at an offset. Closing the iterator ends it.

        Raises:
            NotFoundError: The account has no session with this id, or the log is gone.
        """
        found = await self.get(caller, session_id)
        host, internal_id = self._where(found, "log")
        parts = host.state.client.read_log(internal_id, offset=offset, follow=follow)
        return _translated(parts, session_id)

    async def report(self, found: ShownSession) -> SessionReport:
        """Read how a session ended.

        Raises:
            NotFoundError: Its host is gone, or has forgotten it.
            ConflictError: It has not ended.
            HostUnavailableError: Its host does not answer.
        """
        session = found.session
        host, internal_id = self._where(found, "report")
        if not session.state.ended:
            raise ConflictError("the session has not ended")
        with _translation(session.id):
            return await host.state.client.get_report(internal_id)

    async def most_players(self, found: ShownSession) -> MostPlayers:
        """Read the highest numbers of players in the runs of a session."""
        session = found.session
        return await self._store.look(most_players, session.account, session.id)

    async def artifact(
        self, caller: Caller, session_id: str, path: str
    ) -> AsyncGenerator[bytes, None]:
        """Open a .tar.gz of a file or folder of an ended session.

        Raises:
            NotFoundError: The account has no session with this id, or the container is gone.
            ConflictError: It has not ended.
        """
        found = await self.get(caller, session_id)
        host, internal_id = self._where(found, "artifact")
        if not found.session.state.ended:
            raise ConflictError("the session has not ended")
        return _translated(host.state.client.fetch_artifact(internal_id, path), session_id)

    async def _stop_on_host(self, session: Session, deadline: float) -> None:
        """Wait for the fleet's stop of a session, which continues after a timeout."""
        host, internal_id = self._where(self.shown(session), "host")
        stop = host.stops.stop_session(internal_id)
        release_request_slot()
        with suppress(TimeoutError):
            async with timeout(deadline - self._clock.monotonic(), self._clock):
                await asyncio.wait({stop})
        if not stop.done():
            await self._check_stopping(session)
        elif stop.cancelled() or not stop.result():
            raise HostUnavailableError(NOT_KILLED)
        log.info(
            "session stopped",
            session=internal_id,
            id=session.id,
            account=session.account,
            agent=host.name,
        )

    async def _check_stopping(self, session: Session) -> None:
        """Accept a stop whose grace period is longer than the wait."""
        newest = await self._store.look(read_session, session.account, session.id)
        stopping = newest is None or newest.state.ended or newest.state is State.SHUTTINGDOWN
        if not stopping:
            raise HostUnavailableError("the host does not answer; the stop is remembered")

    def _where(self, found: ShownSession, what: str) -> tuple[Host, str]:
        session = found.session
        if session.internal_id is None or session.agent is None:
            raise NotFoundError(what, session.id)
        host = self._fleet.host(session.agent)
        if host is None:
            raise NotFoundError(what, session.id)  # its host was removed
        if found.status is SessionStatus.SERVER_UNREACHABLE:
            raise HostUnavailableError("the host is unreachable")
        return host, session.internal_id

    def shown(self, session: Session) -> ShownSession:
        """Add the status that callers see now."""
        return ShownSession(session, self._status(session.state, session.agent))

    def _status(self, state: State, agent: str | None) -> SessionStatus:
        return shown_status(
            state,
            draining=self._fleet.is_draining(agent),
            responsive=self._fleet.is_responsive(agent),
        )


async def _translated(
    chunks: AsyncGenerator[_Part, None], session_id: str
) -> AsyncGenerator[_Part, None]:
    async with aclosing(chunks):
        with _translation(session_id):
            async for chunk in chunks:
                yield chunk


@contextmanager
def _translation(session_id: str) -> Iterator[None]:
    """Translate errors of agent calls for the caller."""
    try:
        yield
    except AgentRefusedError as error:
        raise _refusal(error, session_id) from error
    except AgentUnavailableError as error:
        raise HostUnavailableError(f"the host does not answer: {error}") from error


_GONE = {
    ErrorReason.SESSION_NOT_FOUND: "session",
    ErrorReason.CONTAINER_GONE: "session",
    ErrorReason.LOG_GONE: "log",
    ErrorReason.PATH_NOT_FOUND: "path",
}


def _refusal(error: AgentRefusedError, session_id: str) -> TiltyardError:
    if (what := _GONE.get(error.agent_reason)) is not None:
        return NotFoundError(what, session_id)
    match error.agent_reason:
        case ErrorReason.SESSION_LIVE:
            return ConflictError("the session has not ended")
        case ErrorReason.ARTIFACT_TOO_LARGE:
            return ArtifactTooLargeError(error.text)
        case ErrorReason.NO_CAPACITY:
            return HostBusyError(error.text, retry_after=BUSY_RETRY_AFTER)
    return HostUnavailableError(f"the host rejected the request: {error}")
