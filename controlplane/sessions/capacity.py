"""Capacity of hosts for cold starts: reserved in memory before any commit, and released."""

import uuid
from dataclasses import dataclass

from controlplane.domain.errors import StoppedDuringStartError
from controlplane.domain.sessions.start_timing import Phase
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.fleet.queue import HostQueue, PendingAttempt
from controlplane.sessions.hold import Confirmed, Hold, attempt_on
from controlplane.sessions.start_request import Plan
from controlplane.sessions.under_way import Start


@dataclass(slots=True, eq=False)
class HeldCapacity(Hold):
    """The capacity, ports and start slot of one attempt."""

    fleet: Fleet

    def release(self) -> None:
        """Release the reservation; that of a running session ends with the host's next report."""
        if not isinstance(self.outcome, Confirmed):
            self.fleet.give_back(self.host, self.attempt.internal_id)


class Capacity:
    """Reserves capacity of hosts for starts."""

    def __init__(self, fleet: Fleet, queue: HostQueue) -> None:
        self._fleet = fleet
        self._queue = queue

    def reserve_host(self, start: Start, plan: Plan) -> HeldCapacity | None:
        """Reserve a host for the first attempt; None if no host can take it now."""
        pending = _pending_attempt(start, plan, frozenset())
        with start.timing.phase(Phase.QUEUE):
            host = self._fleet.take_host(
                *pending.place,
                pending.wanted,
                internal_id=pending.internal_id,
                refused=pending.tried,
            )
        return None if host is None else self._held(host, pending)

    async def wait_for_host(
        self, start: Start, plan: Plan, tried: frozenset[str], seconds: float
    ) -> HeldCapacity:
        """Reserve a host other than those `tried`, waiting up to `seconds`.

        Raises:
            StoppedDuringStartError: The start was called off.
            NoCapacityError: No host has room, or no slot became free in time.
            HostsNotReportedError: Only hosts that have not reported yet may have room.
        """
        pending = _pending_attempt(start, plan, tried)
        start.wait_with(pending)
        with start.timing.phase(Phase.QUEUE):
            host = await self._queue.take_host(pending, seconds)
        if host is None:
            raise StoppedDuringStartError
        return self._held(host, pending)

    def call_off_wait(self, start: Start) -> None:
        """Call off a start, and end its wait for a host. Idempotent."""
        pending = start.call_off()
        if pending is not None:
            self._queue.call_off(pending)

    def _held(self, host: Host, pending: PendingAttempt) -> HeldCapacity:
        return HeldCapacity(host, attempt_on(host, pending.internal_id), self._fleet)


def _pending_attempt(start: Start, plan: Plan, tried: frozenset[str]) -> PendingAttempt:
    place = start.request.location, plan.application.node_pool
    return PendingAttempt(place, start.account, plan.wanted, str(uuid.uuid4()), tried)
