"""The choice of a host for a start, and the queues of starts that wait for a start slot.

There is one queue per region and node pool, fair between accounts. A free slot goes to its queue
in the same step of the event loop, so that no later start takes it; so does a prepared container,
with which a start needs no slot.
"""

import asyncio
import math
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from controlplane.domain.errors import RETRY_AFTER, NoCapacityCause, NoCapacityError
from controlplane.domain.placement import Wanted
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.fleet.unreported import Place
from controlplane.http.request_slots import release_slot
from tiltyard.runtime.clock import Clock, timeout
from tiltyard.runtime.fair_queue import FairQueue
from tiltyard.runtime.fair_share import exceeds_share

RECHECK = 0.5  # Seconds between checks that a host still has room for the waiting starts


@dataclass(slots=True, eq=False)
class Ask:
    """The request of one attempt; `tried` are the agents that were asked before."""

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
    waiting: FairQueue[Ask] = field(default_factory=FairQueue)
    wanted: Counter[Wanted] = field(default_factory=Counter)
    is_watched: bool = False

    def put(self, ask: Ask) -> None:
        self.waiting.put(ask.account, ask)
        self.wanted[ask.wanted] += 1

    def remove(self, ask: Ask) -> bool:
        return self.waiting.remove(ask.account, ask) and self._forget(ask)

    def pop(self, host: str, fitting: set[Wanted]) -> Ask | None:
        ask = self.waiting.pop(lambda each: each.wanted in fitting and host not in each.tried)
        if ask is not None:
            self._forget(ask)
        return ask

    def _forget(self, ask: Ask) -> bool:
        self.wanted[ask.wanted] -= 1
        if not self.wanted[ask.wanted]:
            del self.wanted[ask.wanted]
        return True


class HostQueue:
    """Owns the start queues."""

    def __init__(self, fleet: Fleet, *, max_waiting: int, clock: Clock) -> None:
        self._fleet = fleet
        self._max_waiting = max_waiting
        self._clock = clock
        self._queues: dict[Place, _Queue] = {}
        fleet.subscribe(self._offer)

    async def take_host(self, ask: Ask, seconds: float) -> Host | None:
        """Choose a host and reserve what the attempt needs, waiting up to `seconds`.

        None if the wait was called off.

        Raises:
            NoCapacityError: No host has room, or no slot became free in time.
            HostsNotReportedError: Only hosts that have not reported yet may have room.
        """
        release_slot()
        host = self._fleet.take_host(
            *ask.place, ask.wanted, internal_id=ask.internal_id, refused=ask.tried
        )
        if host is not None:
            return host
        if self._fleet.hopeless(*ask.place, [(ask.wanted, ask.tried)]):
            raise _no_room(ask)
        queue = self._queues.setdefault(ask.place, _Queue(ask.place))
        waiting = len(queue.waiting)
        of_account = queue.waiting.count(ask.account)
        if exceeds_share(of_account, 1, waiting, self._max_waiting):
            # Each of them has begun or given up by then.
            why = f"{waiting} starts wait for a slot, {of_account} of them of this account"
            after = math.ceil(seconds)
            raise NoCapacityError(ask.place[0], why, max(1, after), NoCapacityCause.QUEUE_FULL)
        ask.given = asyncio.get_running_loop().create_future()
        queue.put(ask)
        self._watch(queue)
        try:
            with suppress(TimeoutError):
                async with timeout(seconds, self._clock):
                    await asyncio.wait({ask.given})
        except asyncio.CancelledError:
            self._give_back(ask)
            raise
        finally:
            queue.remove(ask)
        if not ask.given.done():
            if self._fleet.hopeless(*ask.place, [(ask.wanted, ask.tried)], reported_only=True):
                self._fleet.unreported.check([ask.place], taking=True)
            why = "the start timed out"
            cause = NoCapacityCause.OUT_OF_TIME
            raise NoCapacityError(ask.place[0], why, RETRY_AFTER, cause)
        return ask.given.result()

    def waiting(self) -> dict[Place, int]:
        """Count the waiting starts by region and node pool."""
        return {place: len(queue.waiting) for place, queue in self._queues.items()}

    def call_off(self, ask: Ask) -> None:
        """End a wait without a host. Idempotent."""
        queue = self._queues.get(ask.place)
        if queue is not None and queue.remove(ask):
            ask.given.set_result(None)

    def _give_back(self, ask: Ask) -> None:
        """Release the host of a wait that was cancelled just after it got one."""
        if ask.given.done() and ask.given.exception() is None:
            host = ask.given.result()
            if host is not None:
                self._fleet.give_back(host, ask.internal_id)

    def _watch(self, queue: _Queue) -> None:
        if not queue.is_watched:
            queue.is_watched = True
            asyncio.get_running_loop().call_later(RECHECK, self._recheck, queue)

    def _recheck(self, queue: _Queue) -> None:
        queue.is_watched = False
        waiting = list(queue.waiting)
        hopeless = self._fleet.hopeless(*queue.place, {(ask.wanted, ask.tried) for ask in waiting})
        for ask in waiting if hopeless else ():
            if (ask.wanted, ask.tried) in hopeless:
                queue.remove(ask)
                ask.given.set_exception(_no_room(ask))
        if queue.waiting:
            self._watch(queue)

    def _offer(self, host: Host) -> None:
        queue = self._queues.get((host.row.region, host.row.node_pool))
        while queue is not None and queue.waiting and host.takes_starts:
            able = [wanted for wanted in queue.wanted if host.can_begin(wanted)]
            fitting = self._fleet.fitting(host, able)
            ask = queue.pop(host.name, fitting) if fitting else None
            if ask is None:
                return
            host.hold(ask.internal_id, ask.wanted)
            ask.given.set_result(host)


def _no_room(ask: Ask) -> NoCapacityError:
    why = "no host has capacity"
    cause = NoCapacityCause.NO_ROOM
    return NoCapacityError(ask.place[0], why, RETRY_AFTER, cause)
