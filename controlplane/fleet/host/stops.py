"""Calls about single sessions of one host, retried until it answers: stops and claims."""

import asyncio
from dataclasses import KW_ONLY, dataclass
from functools import partial

from controlplane.domain.errors import AgentRefusedError
from controlplane.fleet.host.delivery import Deliveries
from controlplane.fleet.host.reports import Reports
from controlplane.fleet.host.state import HostState
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.sessions.claims import held_claim
from controlplane.storage.tables.sessions.session_ends import end_stopped
from controlplane.storage.tables.sessions.session_queries import has_row
from controlplane.storage.tables.sessions.stop_orders import pending_stops
from tiltyard.contract import ErrorReason
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.failpoints import Reach
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

STOP_TIMEOUT = 60.0  # Longer than a host's grace period; a stop that takes longer is sent again


@dataclass(frozen=True, slots=True)
class Stops:
    """Stops sessions of one host, retrying until the host confirms."""

    host: HostState
    store: Store
    reports: Reports
    deliveries: Deliveries
    _: KW_ONLY
    clock: Clock
    reach: Reach

    def stop_session(self, internal_id: str) -> "asyncio.Task[bool]":
        """Stop a session as requested.

        The task's result is False if its process cannot be killed.
        """
        return self.deliveries.get("stop", internal_id) or self.deliveries.start(
            "stop",
            internal_id,
            attempt=partial(self._stop, internal_id),
            failed=partial(log.warning, "cannot stop a session", session=internal_id),
        )

    async def queue_pending(self) -> None:
        """Send the stop orders that the host has not confirmed, a few at a time.

        Raises:
            StoreError: They cannot be read.
        """
        for internal_id in await self.store.look(pending_stops, self.host.name):
            self.queue_stop(internal_id)

    def queue_stop(self, internal_id: str) -> None:
        """Stop a session because of an order or a report, a few at a time."""
        self.deliveries.queue(
            "stop",
            internal_id,
            attempt=partial(self._stop, internal_id),
            failed=partial(log.warning, "cannot stop a session", session=internal_id),
        )

    async def _stop(self, internal_id: str) -> bool:
        agent = self.host.name
        discard = not await self.store.look(has_row, internal_id)
        try:
            answer = await self.host.client.stop_session(
                internal_id, STOP_TIMEOUT, discard=discard
            )
        except AgentRefusedError as error:
            if error.agent_reason is ErrorReason.CANNOT_KILL:
                log.warning("cannot stop a session", session=internal_id, error=str(error))
                return False
            if error.agent_reason is not ErrorReason.SESSION_NOT_FOUND:
                raise
            await self.store.run(end_stopped, agent, internal_id, self.clock.time())
            self.host.drop(internal_id)
        else:
            await self.reach("stop.answered")
            await self.reports.write_stopped(agent, answer.session, self.clock.time())
            await self.reach("stop.written")
            if answer.session.state.ended:
                self.host.forget(answer.session)
        self.host.notify()
        return True


CLAIM_TIMEOUT = 10.0  # The host writes the claim, and the file that the game reads, to its disk


@dataclass(frozen=True, slots=True)
class ClaimReplay:
    """Repeats claims that are in the database but unknown to the host.

    A control plane causes this if it died after storing a claim, a host if it lost the record of a
    claimed standby or of a session that used a prepared container.
    """

    host: HostState
    store: Store
    reports: Reports
    deliveries: Deliveries
    clock: Clock

    def queue_claim(self, internal_id: str) -> None:
        """Claim a standby again until it is a session or gone. Idempotent."""
        self.deliveries.queue(
            "claim",
            internal_id,
            attempt=partial(self._attempt, internal_id),
            failed=partial(log.warning, "cannot claim again yet", session=internal_id),
        )

    async def _attempt(self, internal_id: str) -> None:
        name = self.host.name
        seen = self.host.session(internal_id)
        if seen is None or not seen.is_standby or internal_id in self.host.under_way:
            return
        now = self.clock.time()
        claim = await self.store.look(held_claim, name, internal_id, now)
        if claim is None:
            return
        answer = await self.host.client.claim_session(claim, CLAIM_TIMEOUT)
        session = self.host.answered(internal_id, answer)
        await self.reports.write(name, (session,), self.clock.time())
        log.info("claimed again", session=internal_id)
