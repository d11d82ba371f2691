"""Hosts that have not reported since this process started, and the calls that wait for them.

A call whose answer such a host could change waits until the host has reported its first snapshot,
was removed, or has been unresponsive for `unreachable_after`.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from controlplane.admission.request_slots import release_request_slot
from controlplane.domain.errors import RETRY_AFTER, HostsNotReportedError
from controlplane.fleet.host.host import Host
from tiltyard.runtime.clock import Clock, timeout

Place = tuple[str, str]  # A region and a node pool

_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class _Wait:
    places: frozenset[Place]
    images: Collection[str]
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True, kw_only=True)
class UnreportedHosts:
    """Owns the set of hosts that have not reported; it only shrinks.

    Calls wait for them during the first `unreachable_after` seconds of the process.
    """

    unreachable_after: Callable[[], float]
    listened: Callable[[], float]  # Reads the `ListeningClock`
    clock: Clock
    _hosts: dict[Place, set[Host]] = field(default_factory=dict)
    _began: float = 0.0
    _is_over: bool = False
    """True once no call waits for them any longer."""
    _waits: set[_Wait] = field(default_factory=set)

    def begin(self, hosts: Iterable[Host]) -> None:
        """Wait for these hosts, except the lost ones."""
        self._began = self.listened()
        for host in hosts:
            if host.state.lost is None:
                self._hosts.setdefault(_place(host), set()).add(host)

    def note(self, host: Host) -> None:
        """Drop a host that has reported or was removed."""
        place = _place(host)
        hosts = self._hosts.get(place, set())
        if host not in hosts or not (
            host.state.removed or host.state.has_reported or host.state.is_newer
        ):
            return
        hosts.discard(host)
        if not hosts:
            del self._hosts[place]
        images = frozenset[str]() if host.state.report is None else host.state.report.images
        is_last = not self.count([place], taking=True)
        for wait in self._waits:
            if place in wait.places and (is_last or not images.isdisjoint(wait.images)):
                wait.over.set()

    def count(self, places: Iterable[Place], *, taking: bool = False) -> int:
        """Count the unreported hosts; with `taking`, only those that are not draining."""
        self._is_over = self._is_over or self._seconds_left() <= 0
        if self._is_over or not self._hosts:
            return 0
        hosts = (host for place in places for host in self._hosts.get(place, ()))
        return sum(1 for host in hosts if not (taking and host.state.draining))

    def is_any_at(self, place: Place) -> bool:
        """Return whether a host of a place has not reported yet, and is not given up as lost."""
        return any(host.state.lost is None for host in self._hosts.get(place, ()))

    def check(self, places: Collection[Place], *, taking: bool = False) -> None:
        """Raise unless every host that could change an answer about `places` has reported.

        Raises:
            HostsNotReportedError: At least one has not.
        """
        count = self.count(places, taking=taking)
        if count:
            retry_after = max(1, min(RETRY_AFTER, math.ceil(self._seconds_left())))
            regions = ", ".join(sorted({region for region, _ in places}))
            raise HostsNotReportedError(count, regions, retry_after)

    async def wait_for(
        self,
        evaluate: Callable[[], _T],
        *,
        places: Iterable[Place],
        images: Collection[str],
        deadline: float,
    ) -> _T:
        """Return the result of `evaluate`, retried whenever a host may have changed it.

        A report in `places` causes a retry if it has one of `images` or is the last one.

        Raises:
            HostsNotReportedError: The last one of `evaluate`, at the monotonic `deadline`.
        """
        at = frozenset(places)
        while True:
            try:
                return evaluate()
            except HostsNotReportedError:
                left = deadline - self.clock.monotonic()
                if left <= 0:
                    raise
                await self._next(_Wait(at, images), min(left, self._seconds_left()))

    async def _next(self, wait: _Wait, seconds: float) -> None:
        release_request_slot()
        self._waits.add(wait)
        try:
            async with timeout(seconds, self.clock):
                await wait.over.wait()
        except TimeoutError:
            pass
        finally:
            self._waits.discard(wait)

    def _seconds_left(self) -> float:
        return self.unreachable_after() - (self.listened() - self._began)


def _place(host: Host) -> Place:
    return host.state.row.region, host.state.row.node_pool
