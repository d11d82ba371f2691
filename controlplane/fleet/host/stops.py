"""Stops of sessions on one host: each is repeated until the host has answered it."""

import asyncio
from functools import partial

from controlplane.domain.errors import AgentRefusedError
from controlplane.fleet.host.delivery import Deliveries
from controlplane.fleet.host.state import HostState
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.reports import Reports
from controlplane.storage.tables.session_rows import end_session, has_row, note_stopped
from tiltyard.contract import EndReason, ErrorReason, State
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.failpoints import Reach
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

TIMEOUT = 60.0
"""Longer than a host's grace period; a stop that takes longer is asked for again."""


class Stops:
    """Stops sessions of one host for certain."""

    def __init__(
        self,
        host: HostState,
        store: Store,
        reports: Reports,
        deliveries: Deliveries,
        *,
        clock: Clock,
        reach: Reach,
    ) -> None:
        """`reach` is called at the steps of `domain/steps.py`."""
        self._host = host
        self._store = store
        self._reports = reports
        self._deliveries = deliveries
        self._clock = clock
        self._reach = reach

    def start(self, internal_id: str) -> "asyncio.Task[bool]":
        """Stop a session; the task's result is False when its process cannot be killed."""
        return self._deliveries.get("stop", internal_id) or self._deliveries.start(
            "stop",
            internal_id,
            attempt=partial(self._stop, internal_id),
            failed=partial(log.warning, "cannot stop a session", session=internal_id),
        )

    async def _stop(self, internal_id: str) -> bool:
        agent = self._host.name
        discard = not await self._store.look(has_row, internal_id)
        try:
            answer = await self._host.client.stop_session(internal_id, TIMEOUT, discard=discard)
        except AgentRefusedError as error:
            if error.agent_reason is ErrorReason.CANNOT_KILL:
                log.warning("cannot stop a session", session=internal_id, error=str(error))
                return False
            if error.agent_reason is not ErrorReason.SESSION_NOT_FOUND:
                raise
            state, reason, now = State.EXITED, EndReason.STOPPED, self._clock.time()
            await self._store.run(
                end_session, agent, internal_id, state=state, reason=reason, now=now
            )
            self._host.drop(internal_id)
        else:
            await self._reach("stop.answered")
            await self._reports.write(agent, (answer.session,), self._clock.time())
            await self._reach("stop.written")
            if answer.session.state.ended:
                self._host.forget(answer.session)
        self._host.notify()
        await self._store.run(note_stopped, agent, self._clock.time(), internal_id)
        return True
