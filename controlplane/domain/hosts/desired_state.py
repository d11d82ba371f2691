"""What one host is ordered: its drain, the sizes of its warm pools, and the shapes it prepares.

Drains and pools have revisions, which the host stores and reports. Of an order and the report, the
one with the higher revision holds. At an equal revision the report holds: an order that is given
on the host itself keeps the revision of the order before.

Shapes have no revision, and the host does not store them: each incarnation of the agent gets them.

An order is pending until the host has reported its revision, or this incarnation has answered it.
"""

from collections.abc import Mapping

from controlplane.domain.hosts.contract import Drain, PoolOnHost, StandbyOrder
from tiltyard.agent.bounds import MAX_REVISION
from tiltyard.contract import SessionSpec

Shapes = tuple[SessionSpec, ...]

_UNKNOWN = PoolOnHost(0, 0)


class DesiredState:
    """The newest orders of one host, and those that it is known to have."""

    def __init__(self, drain: Drain) -> None:
        self.drain = drain
        """The drain that holds, ordered here or on the host."""
        self._reported_drain = Drain()
        self._pools: dict[str, StandbyOrder] = {}
        self._reported_pools: Mapping[str, PoolOnHost] = {}
        self._answered_pools: dict[str, int] = {}  # Revisions, of this incarnation
        self._shapes: Shapes | None = None
        self._answered_shapes: Shapes | None = None

    # ---- what holds

    @property
    def drain_pending(self) -> bool:
        """True until the host has reported the newest drain order."""
        return self._reported_drain.revision < self.drain.revision

    @property
    def pools(self) -> set[str]:
        """The pools that the host keeps or has orders for."""
        return self._pools.keys() | self._reported_pools.keys()

    def pool_size(self, pool_id: str) -> int:
        """Return how many standbys of a pool the host must keep."""
        known = self._known_pool(pool_id)
        order = self._pools.get(pool_id)
        return known.size if order is None or known.revision > order.revision else order.size

    @property
    def overruled_pools(self) -> list[str]:
        """The pools of which the host has an order that is newer than the newest from here.

        A removal that was not ordered from here is no such order: it asks for nothing.
        """
        return [
            pool_id
            for pool_id, known in self._reported_pools.items()
            if known.revision > self._revision_of(pool_id, known)
        ]

    def _revision_of(self, pool_id: str, known: PoolOnHost) -> int:
        order = self._pools.get(pool_id)
        if order is None:
            return -1 if known.size else known.revision
        return order.revision

    def pending_pool(self, pool_id: str) -> StandbyOrder | None:
        """Return the order of a pool unless the host has it."""
        order = self._pools.get(pool_id)
        if order is None or self._known_pool(pool_id).revision >= order.revision:
            return None
        return None if self._answered_pools.get(pool_id) == order.revision else order

    def pending_shapes(self) -> Shapes | None:
        """Return the shapes unless the host has them."""
        return None if self._shapes == self._answered_shapes else self._shapes

    # ---- orders

    def order_drain(self, drain: Drain) -> None:
        """Begin or call off a drain; it holds from now on."""
        self.drain = drain

    def order_pool(
        self, pool_id: str, size: int, spec: SessionSpec | None, claim_signal: str, *, now_ms: int
    ) -> None:
        """Order standbys of a pool, if that changes the newest order.

        Revisions follow the wall clock, so that they exceed those of an earlier control plane
        even if its database was lost. A host that claims to have the last one there can be gets
        no further order.
        """
        known = self._known_pool(pool_id)
        newest = self._pools.get(pool_id)
        if newest is None and not size and not known.size:
            return
        last = max(known.revision, 0 if newest is None else newest.revision)
        if newest != StandbyOrder(pool_id, last, size, spec, claim_signal):
            revision = min(max(now_ms, last + 1), MAX_REVISION)
            self._pools[pool_id] = StandbyOrder(pool_id, revision, size, spec, claim_signal)

    def order_shapes(self, shapes: Shapes) -> None:
        """Order a prepared container of each of these shapes, in place of the order before."""
        self._shapes = shapes

    # ---- what the host has

    def note_report(self, drain: Drain, pools: Mapping[str, PoolOnHost]) -> None:
        """Note the orders that the host has by its report; forget finished removals of pools."""
        self._reported_drain = drain
        if drain.revision >= self.drain.revision:
            self.drain = drain
        self._reported_pools = pools
        for order in list(self._pools.values()):
            if not order.size and self._known_pool(order.pool_id).revision >= order.revision:
                del self._pools[order.pool_id]
                self._answered_pools.pop(order.pool_id, None)

    def note_pool_answer(self, order: StandbyOrder) -> None:
        """Note that the host has answered an order, and will report it."""
        self._answered_pools[order.pool_id] = order.revision

    def note_shapes_answer(self, shapes: Shapes) -> None:
        """Note that the host has answered, and need not be sent these shapes again."""
        self._answered_shapes = shapes

    def forget_answers(self) -> None:
        """Forget the answers of an earlier incarnation of the agent."""
        self._answered_pools.clear()
        self._answered_shapes = None

    def _known_pool(self, pool_id: str) -> PoolOnHost:
        return self._reported_pools.get(pool_id, _UNKNOWN)
