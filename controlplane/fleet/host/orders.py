"""Orders sent to one host until it answers: stops, drains, pool sizes, replayed claims."""

import asyncio
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from controlplane.domain.contract import Drain, PoolOnHost, StandbyOrder
from controlplane.domain.errors import AgentRefusedError
from controlplane.fleet.host.delivery import Deliveries
from controlplane.fleet.host.state import HostState
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.claims import held_claim
from controlplane.storage.tables.fleet import learn_drain
from controlplane.storage.tables.reports import Reports
from controlplane.storage.tables.session_rows import end_stopped, has_row
from tiltyard.contract import ErrorReason, SessionSpec
from tiltyard.runtime.clock import Clock, is_trusted, to_ms
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

    def start(self, internal_id: str) -> "asyncio.Task[bool]":
        """Stop a session as requested.

        The task's result is False if its process cannot be killed.
        """
        return self.deliveries.get("stop", internal_id) or self.deliveries.start(
            "stop",
            internal_id,
            attempt=partial(self._stop, internal_id),
            failed=partial(log.warning, "cannot stop a session", session=internal_id),
        )

    def queue(self, internal_id: str) -> None:
        """Stop a session because of what a host has reported, a few at a time."""
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


@dataclass(slots=True)
class DrainOrders:
    """Owns the drain orders of one host.

    The order with the highest revision holds. One given on the host itself has the revision of the
    preceding order of the control plane: it is learned and not undone. So is one with a higher
    revision than stored, which means a restored database.
    """

    host: HostState
    store: Store
    deliveries: Deliveries
    clock: Clock
    _stored: Drain = field(init=False)
    _loaded: Drain = field(init=False)  # Of an earlier run of the control plane

    def __post_init__(self) -> None:
        self._stored = self._loaded = self.host.drain

    async def reported(self, *, reconnected: bool) -> None:
        """Store an order learned from the host, or send the pending one.

        `reconnected`: an earlier call may hang on a dead connection and is replaced.

        Raises:
            StoreError: The learned order cannot be stored.
        """
        learned = self.host.drain
        if learned != self._stored:
            await self.store.run(learn_drain, self.host.name, learned)
            log.info("host reported its drain", draining=learned.draining)
            if self._stored.revision <= learned.revision:  # else a newer order was given meanwhile
                self._stored = learned
        if self.host.drain_pending:
            self._send(again=reconnected)

    def order(self, drain: Drain) -> None:
        """Send a stored order to the host, and retry until it answers."""
        self._stored = drain
        self.host.order_drain(drain)
        self.host.notify()
        self._send()

    async def acknowledged(self, timeout: float) -> None:
        """Wait up to `timeout` seconds until the host has acknowledged its orders."""
        task = self.deliveries.get("drain")
        if task is not None:
            await asyncio.wait({task}, timeout=timeout)

    def _send(self, *, again: bool = False) -> None:
        if again or self.deliveries.get("drain") is None:
            failed = partial(log.warning, "cannot set its drain")
            self.deliveries.start("drain", attempt=self._attempt, failed=failed, at_once=False)

    def _remaining_is_known(self, order: Drain) -> bool:
        """Return whether the remaining time of an order is known.

        After a boot, the clock may differ from that by which an earlier run set the deadline.
        """
        return order.deadline is None or order != self._loaded or is_trusted(self.clock)

    async def _attempt(self) -> None:
        while self.host.drain_pending:
            order = self.host.drain
            if not self._remaining_is_known(order):
                await self.clock.sleep(1.0)
                continue
            await self.host.client.set_drain(order, self.clock.time())
            self.host.acknowledge_drain(order)
            self.host.notify()
            if self.host.report is None:
                return  # its first report shows whether more is pending


_UNKNOWN = PoolOnHost(0, 0)


@dataclass(slots=True)
class PoolOrders:
    """Owns the warm pool orders of one host."""

    host: HostState
    deliveries: Deliveries
    clock: Clock
    _newest: dict[str, StandbyOrder] = field(default_factory=dict)
    _acknowledged: dict[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def pools(self) -> set[str]:
        """The pools that the host keeps or has orders for."""
        report = self.host.report
        return self._newest.keys() | (report.warm_pools.keys() if report else set())

    def size(self, pool_id: str) -> int:
        """Return the share of a pool, by the newer of the last order and the report."""
        known = self._known(pool_id)
        newest = self._newest.get(pool_id)
        return known.size if newest is None or known.revision > newest.revision else newest.size

    def set(self, pool_id: str, size: int, spec: SessionSpec | None, claim_signal: str) -> None:
        """Order standbys if that changes the newest order, and send a pending order.

        Revisions follow the wall clock, so that they exceed those of an earlier control plane
        even if its database was lost.
        """
        known = self._known(pool_id)
        newest = self._newest.get(pool_id)
        if newest is None and not size and not known.size:
            return
        last = max(known.revision, newest.revision if newest else 0)
        if newest != StandbyOrder(pool_id, last, size, spec, claim_signal):
            revision = max(to_ms(self.clock.time()), last + 1)
            self._newest[pool_id] = StandbyOrder(pool_id, revision, size, spec, claim_signal)
        if self._pending(pool_id):
            self.deliveries.queue(
                "pool",
                pool_id,
                attempt=partial(self._attempt, pool_id),
                failed=partial(log.warning, "cannot order standbys of a pool", pool=pool_id),
            )

    def _known(self, pool_id: str) -> PoolOnHost:
        report = self.host.report
        return _UNKNOWN if report is None else report.warm_pools.get(pool_id, _UNKNOWN)

    def _pending(self, pool_id: str) -> StandbyOrder | None:
        """Return the newest order unless the host has it; forget a finished removal."""
        order = self._newest.get(pool_id)
        if order is None or self.host.report is None or self.host.removed:
            return None
        if self._known(pool_id).revision >= order.revision:
            if not order.size:
                del self._newest[pool_id]
            return None
        is_acknowledged = self._acknowledged.get(pool_id) == (
            self.host.incarnation,
            order.revision,
        )
        return None if is_acknowledged else order

    async def _attempt(self, pool_id: str) -> None:
        while (order := self._pending(pool_id)) is not None:
            incarnation = self.host.incarnation
            await self.host.client.set_warm_pool(order)
            self._acknowledged[pool_id] = incarnation, order.revision
            if self.host.incarnation != incarnation:
                return  # the next plan sends the order to the restarted agent


CLAIM_TIMEOUT = 10.0  # The host writes the claim, and the file that the game reads, to its disk


@dataclass(frozen=True, slots=True)
class ClaimReplay:
    """Repeats claims that are in the database but unknown to the host.

    They are left by a control plane that died after storing a claim, or by a host that lost the
    record of a claimed standby, or of a session that used a prepared container.
    """

    host: HostState
    store: Store
    reports: Reports
    deliveries: Deliveries
    clock: Clock

    def queue(self, internal_id: str) -> None:
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
