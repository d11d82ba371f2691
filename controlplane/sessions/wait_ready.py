"""Starts that are answered once players can reach the session (`Prefer: wait=ready`).

The start is a normal one; the response waits for the host's reports. A session that is not ready
in time is stopped. A client that hangs up cancels neither.
"""

import asyncio
from collections import Counter
from contextlib import suppress

from controlplane.domain.access.callers import Caller
from controlplane.domain.errors import (
    AgentRefusedError,
    AgentUnavailableError,
    ConflictError,
    HostUnavailableError,
    NotFoundError,
    SessionNotReadyError,
    StoppingError,
)
from controlplane.domain.hosts.contract import HostSession
from controlplane.domain.sessions.unbound_ports import describe_bindings
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.metrics.starts import StartMetrics
from controlplane.sessions.sessions import Sessions
from controlplane.sessions.start import Starts
from controlplane.sessions.start_request import StartRequest
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.sessions.sessions import read_session
from tiltyard.contract import State
from tiltyard.runtime.clock import Clock, timeout
from tiltyard.runtime.fair_share import exceeds_share

MOST_AT_ONCE = 2000  # Concurrent waits: as many as two full hosts could have
BINDINGS_TIMEOUT = 2.0  # A host reads some files of its kernel
ENDED_BEFORE = "it ended before its ports were bound"
NOT_IN_TIME = "its ports were not bound in time"

_MAY_BECOME_READY = frozenset({State.RUNNING, State.RESTARTING})


class ReadyStarts:
    """Starts that wait for readiness; a host's reports wake its waits."""

    def __init__(
        self,
        *,
        starts: Starts,
        store: Store,
        sessions: Sessions,
        fleet: Fleet,
        clock: Clock,
        metrics: StartMetrics | None = None,
    ) -> None:
        self._starts = starts
        self._store = store
        self._sessions = sessions
        self._fleet = fleet
        self._clock = clock
        self._metrics = metrics or StartMetrics()
        self._waiting: Counter[str] = Counter()
        self._reported: dict[str, asyncio.Event] = {}
        self._stopping = False
        fleet.subscribe(self._wake)

    def has_room(self, account: str) -> bool:
        """Return whether one more start of an account may wait, within its share."""
        return not exceeds_share(self._waiting[account], 1, self._waiting.total(), MOST_AT_ONCE)

    async def start(self, caller: Caller, request: StartRequest, seconds: float) -> HostSession:
        """Start a session and return it once all its ports are bound.

        Raises:
            SessionNotReadyError: They were not within `seconds`, or it ended before.
            StoppingError: The control plane stops; the session continues.
        """
        deadline = self._clock.monotonic() + seconds
        account = caller.account
        self._waiting[account] += 1
        try:
            return await self._start(caller, request, deadline)
        finally:
            self._waiting[account] -= 1
            if not self._waiting[account]:
                del self._waiting[account]

    def stop_waiting(self) -> None:
        """End every wait on shutdown; the sessions continue."""
        self._stopping = True
        for reported in self._reported.values():
            reported.set()

    async def _start(self, caller: Caller, request: StartRequest, deadline: float) -> HostSession:
        session = await self._starts.start(caller, request)
        del request  # a wait is longer than a start
        began = self._clock.monotonic()
        why_not = await self._wait(caller, session, deadline)
        result = "not_ready" if why_not else "ready"
        self._metrics.ready_wait.labels(result).observe(self._clock.monotonic() - began)
        if why_not:
            with suppress(ConflictError, NotFoundError, HostUnavailableError):
                # Not by its id, which another may have already.
                await self._sessions.stop(caller, session.internal_id)
            raise SessionNotReadyError(session.identity.session_id, why_not)
        return session

    async def _wait(self, caller: Caller, started: HostSession, deadline: float) -> str:
        """Wait until a session is ready; return why it is not, if so."""
        row = await self._store.look(read_session, caller.account, started.internal_id)
        agent = (row and row.agent) or ""
        while True:
            reported = self._reported.setdefault(agent, asyncio.Event())
            session = self._fleet.session(agent, started.internal_id)
            # A reconnecting host has no sessions yet: ask the database.
            if session is None:
                row = await self._store.look(read_session, caller.account, started.internal_id)
                may_become_ready = row is not None and not row.state.ended
            else:
                may_become_ready = session.state in _MAY_BECOME_READY
            if not may_become_ready:
                found = session or row
                detail = found.detail if found is not None else ""
                return f"{ENDED_BEFORE}: {detail}" if detail else ENDED_BEFORE
            if session is not None and session.is_ready:
                return ""
            if self._stopping:
                raise StoppingError("the session keeps running")
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return await self._describe_late(agent, started.internal_id)
            with suppress(TimeoutError):
                async with timeout(left, self._clock):
                    await reported.wait()

    async def _describe_late(self, agent: str, internal_id: str) -> str:
        """Return why a session is not ready in time, with its ports if its host names them."""
        host = self._fleet.host(agent)
        found = ""
        if host is not None and self._fleet.is_responsive(agent):
            with suppress(AgentRefusedError, AgentUnavailableError):
                bindings = await host.state.client.get_bindings(internal_id, BINDINGS_TIMEOUT)
                found = describe_bindings(bindings)
        return f"{NOT_IN_TIME}: {found}" if found else NOT_IN_TIME

    def _wake(self, host: Host) -> None:
        reported = self._reported.pop(host.name, None)
        if reported is not None:
            reported.set()
