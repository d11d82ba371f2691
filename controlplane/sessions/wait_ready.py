"""Starts that are answered once players can reach the session (`Prefer: wait=ready`).

The start is a normal one; the response waits for the host's reports. A session that is not ready
in time is stopped. A client that hangs up cancels neither.
"""

import asyncio
from collections import Counter
from contextlib import suppress

from controlplane.domain.contract import HostSession
from controlplane.domain.errors import (
    ConflictError,
    HostUnavailableError,
    NotFoundError,
    SessionNotReadyError,
    StoppingError,
    TiltyardError,
)
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.http.byte_room import kept_body
from controlplane.metrics.starts import StartMetrics
from controlplane.sessions.sessions import Sessions
from controlplane.sessions.start import Starts
from controlplane.sessions.start_request import StartRequest
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.accounts import Caller
from controlplane.storage.tables.sessions import read_session
from tiltyard.contract import State
from tiltyard.runtime.clock import Clock, timeout
from tiltyard.runtime.fair_share import exceeds_share
from tiltyard.runtime.tasks import TaskOwner

MOST_AT_ONCE = 2000  # Concurrent waits: as many as two full hosts could have

_MAY_BECOME_READY = frozenset({State.RUNNING, State.RESTARTING})


class ReadyStarts:
    """Owns the waits under way; a host's reports wake its waits."""

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
        self._tasks = TaskOwner[HostSession](TiltyardError)
        self._waiting: Counter[str] = Counter()
        self._reported: dict[str, asyncio.Event] = {}
        self._stopping = False
        fleet.subscribe(self._wake)

    def has_room(self, account: str) -> bool:
        """Return whether one more start of an account may wait, within its share."""
        return not exceeds_share(self._waiting[account], 1, len(self._tasks), MOST_AT_ONCE)

    async def start(self, caller: Caller, request: StartRequest, seconds: float) -> HostSession:
        """Start a session and return it once all its ports are bound.

        Raises:
            SessionNotReadyError: They were not within `seconds`, or it ended before.
            StoppingError: The control plane stops; the session continues.
        """
        deadline = self._clock.monotonic() + seconds
        work = self._start(caller, request, deadline)
        task = self._tasks.start(work, f"ready start of {caller.account}")
        self._waiting[caller.account] += 1
        task.add_done_callback(lambda _: self._forget(caller.account))
        return await asyncio.shield(task)

    def _forget(self, account: str) -> None:
        self._waiting[account] -= 1
        if not self._waiting[account]:
            del self._waiting[account]

    def stop_waiting(self) -> None:
        """End every wait on shutdown; the sessions continue."""
        self._stopping = True
        for reported in self._reported.values():
            reported.set()

    async def close(self) -> None:
        """Wait for the starts and the stops under way, which are bounded."""
        self.stop_waiting()
        await self._tasks.wait()

    async def _start(self, caller: Caller, request: StartRequest, deadline: float) -> HostSession:
        with kept_body():
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
                return "it ended before its ports were bound"
            if session is not None and session.is_ready:
                return ""
            if self._stopping:
                raise StoppingError("the session keeps running")
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return "its ports were not bound in time"
            with suppress(TimeoutError):
                async with timeout(left, self._clock):
                    await reported.wait()

    def _wake(self, host: Host) -> None:
        reported = self._reported.pop(host.name, None)
        if reported is not None:
            reported.set()
