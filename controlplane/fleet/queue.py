"""The choice of a host for a start, and the queues of starts that wait for a start slot.

There is one queue per region and node pool, fair between accounts. A free slot goes to its queue
in the same step of the event loop, so that no later start takes it. The same holds for a prepared
container, with which a start needs no slot.
"""

import asyncio
import math
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from controlplane.admission.request_slots import release_request_slot
from controlplane.domain.errors import (
    RETRY_AFTER,
    HostsUnresponsiveError,
    NoCapacityCause,
    NoCapacityError,
)
from controlplane.domain.placement.placement import Wanted
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.fleet.unreported import Place
from tiltyard.runtime.clock import Clock, timeout
from tiltyard.runtime.fair_queue import FairQueue
from tiltyard.runtime.fair_share import exceeds_share

RECHECK = 0.5  # Seconds between checks that a host still has room for the waiting starts


@dataclass(slots=True, eq=False)
class PendingAttempt:
    """An attempt that waits for a host; `tried`: the agents of earlier attempts of its start."""

    place: Place
    account: str
    wanted: Wanted
    internal_id: str
    tried: frozenset[str] = frozenset()
    given: "asyncio.Future[Host | None]" = field(init=False)
    """The chosen host; None if the wait was called off."""


@dataclass(slots=True, eq=False)
class _Queue:
    """The start queue of one place. Identical requests are compared with a host once."""

    place: Place
    waiting: FairQueue[PendingAttempt] = field(default_factory=FairQueue)
    wanted: Counter[Wanted] = field(default_factory=Counter)
    is_watched: bool = False

    def put(self, attempt: PendingAttempt) -> None:
        self.waiting.put(attempt.account, attempt)
        self.wanted[attempt.wanted] += 1

    def remove(self, attempt: PendingAttempt) -> bool:
        return self.waiting.remove(attempt.account, attempt) and self._forget(attempt)

    def pop(self, host: str, fitting: set[Wanted]) -> PendingAttempt | None:
        attempt = self.waiting.pop(lambda each: each.wanted in fitting and host not in each.tried)
        if attempt is not None:
            self._forget(attempt)
        return attempt

    def _forget(self, attempt: PendingAttempt) -> bool:
        self.wanted[attempt.wanted] -= 1
        if not self.wanted[attempt.wanted]:
            del self.wanted[attempt.wanted]
        return True


class HostQueue:
    """Owns the start queues."""

    def __init__(self, fleet: Fleet, *, max_waiting: int, clock: Clock) -> None:
        self._fleet = fleet
        self._max_waiting = max_waiting
        self._clock = clock
        self._queues: dict[Place, _Queue] = {}
        fleet.subscribe(self._offer)

    async def take_host(self, attempt: PendingAttempt, seconds: float) -> Host | None:
        """Choose a host and reserve the resources of the attempt, waiting up to `seconds`.

        Returns None if the wait was called off.

        Raises:
            NoCapacityError: No host has room, or no slot became free in time.
            HostsUnresponsiveError: Only hosts that do not answer may have room.
            HostsNotReportedError: Only hosts that have not reported yet may have room.
        """
        release_request_slot()
        host = self._fleet.take_host(
            *attempt.place, attempt.wanted, internal_id=attempt.internal_id, refused=attempt.tried
        )
        if host is not None:
            return host
        if self._fleet.hopeless(*attempt.place, [(attempt.wanted, attempt.tried)]):
            raise self._no_room(attempt)
        queue = self._queues.setdefault(attempt.place, _Queue(attempt.place))
        waiting = len(queue.waiting)
        of_account = queue.waiting.count(attempt.account)
        if exceeds_share(of_account, 1, waiting, self._max_waiting):
            # Each of them has begun or given up by then.
            why = f"{waiting} starts are waiting for a slot, {of_account} of them of this account"
            after = math.ceil(seconds)
            raise NoCapacityError(attempt.place[0], why, max(1, after), NoCapacityCause.QUEUE_FULL)
        attempt.given = asyncio.get_running_loop().create_future()
        queue.put(attempt)
        self._watch(queue)
        try:
            with suppress(TimeoutError):
                async with timeout(seconds, self._clock):
                    await asyncio.wait({attempt.given})
        except asyncio.CancelledError:
            self._give_back(attempt)
            raise
        finally:
            queue.remove(attempt)
        if not attempt.given.done():
            if self._fleet.hopeless(
                *attempt.place, [(attempt.wanted, attempt.tried)], reported_only=True
            ):
                self._fleet.unreported.check([attempt.place], taking=True)
            why = "the start timed out"
            cause = NoCapacityCause.OUT_OF_TIME
            raise NoCapacityError(attempt.place[0], why, RETRY_AFTER, cause)
        return attempt.given.result()

    def waiting(self) -> dict[Place, int]:
        """Count the waiting starts by region and node pool."""
        return {place: len(queue.waiting) for place, queue in self._queues.items()}

    def call_off(self, attempt: PendingAttempt) -> None:
        """End a wait without a host. Idempotent."""
        queue = self._queues.get(attempt.place)
        if queue is not None and queue.remove(attempt):
            attempt.given.set_result(None)

    def _give_back(self, attempt: PendingAttempt) -> None:
        """Release the host of a wait that was cancelled just after it got one."""
        if attempt.given.done() and attempt.given.exception() is None:
            host = attempt.given.result()
            if host is not None:
                self._fleet.give_back(host, attempt.internal_id)

    def _watch(self, queue: _Queue) -> None:
        if not queue.is_watched:
            queue.is_watched = True
            asyncio.get_running_loop().call_later(RECHECK, self._recheck, queue)

    def _recheck(self, queue: _Queue) -> None:
        queue.is_watched = False
        waiting = list(queue.waiting)
        hopeless = self._fleet.hopeless(
            *queue.place, {(attempt.wanted, attempt.tried) for attempt in waiting}
        )
        for attempt in waiting if hopeless else ():
            if (attempt.wanted, attempt.tried) in hopeless:
                queue.remove(attempt)
                attempt.given.set_exception(self._no_room(attempt))
        if queue.waiting:
            self._watch(queue)

    def _offer(self, host: Host) -> None:
        queue = self._queues.get((host.state.row.region, host.state.row.node_pool))
        while queue is not None and queue.waiting and host.state.takes_starts:
            able = [wanted for wanted in queue.wanted if host.state.can_begin(wanted)]
            fitting = self._fleet.fitting(host, able)
            attempt = queue.pop(host.name, fitting) if fitting else None
            if attempt is None:
                return
            host.state.hold(attempt.internal_id, attempt.wanted)
            attempt.given.set_result(host)

    def _no_room(self, attempt: PendingAttempt) -> NoCapacityError:
        region, _ = attempt.place
        unresponsive = self._fleet.count_unresponsive(
            *attempt.place, attempt.wanted, refused=attempt.tried
        )
        if not unresponsive:
            why = "no host has capacity"
            return NoCapacityError(region, why, RETRY_AFTER, NoCapacityCause.NO_ROOM)
        why = f"no host that answers has capacity, and {unresponsive} others do not answer"
        return HostsUnresponsiveError(region, why, RETRY_AFTER)
