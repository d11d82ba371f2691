"""Makes a host of its parts; each part gets what it needs, and none the whole."""

from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

from controlplane.agent_rpc.client import AgentClient
from controlplane.domain.applications.pulls import Pull
from controlplane.domain.hosts.agents import Agent
from controlplane.domain.hosts.contract import RegistryLogin
from controlplane.fleet.host.delivery import Deliveries
from controlplane.fleet.host.downtime import Downtime
from controlplane.fleet.host.host import Host
from controlplane.fleet.host.image_room import ImageRoom
from controlplane.fleet.host.images import Images
from controlplane.fleet.host.orders import Orders
from controlplane.fleet.host.reports import Reports
from controlplane.fleet.host.standbys import Standbys
from controlplane.fleet.host.state import HostState
from controlplane.fleet.host.stops import ClaimReplay, Stops
from controlplane.fleet.host.watch import Watch
from controlplane.fleet.host.written_reports import WrittenReports
from controlplane.metrics.agents import FleetMetrics
from controlplane.storage.engine.store import Store
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.failpoints import Reach, no_failpoint


class HostMaker:
    """Makes the hosts of a fleet."""

    def __init__(
        self,
        store: Store,
        reports: Reports,
        *,
        dial: Callable[[Agent], AgentClient],
        login_for: Callable[[str], Awaitable[RegistryLogin | None]],
        lost_after: float,
        clock: Clock,
        random: Random,
        reach: Reach = no_failpoint,
        metrics: FleetMetrics | None = None,
    ) -> None:
        """`login_for` returns the login for an image's registry."""
        self._store = store
        self._reports = reports
        self._dial = dial
        self._login_for = login_for
        self._lost_after = lost_after
        self._clock = clock
        self._random = random
        self._reach = reach
        self._metrics = metrics or FleetMetrics()

    def make_host(
        self,
        row: Agent,
        *,
        standbys: Standbys,
        listened: Callable[[], float],
        is_responsive: Callable[[str], bool],
        was_unresponsive: Callable[[str], bool],
        changed: Callable[[Host], None],
        pull_failed: Callable[[Host, Pull], None],
    ) -> Host:
        """Make a host that nobody follows yet; `changed` is called on its changes.

        `listened` reads the `ListeningClock`; `is_responsive` and `was_unresponsive` evaluate an
        agent by it.
        """
        state = HostState(row, self._dial(row), standbys)
        deliveries = Deliveries(row.name, self._clock, self._random)
        stops = self._stops(state, deliveries)
        orders = Orders(state, self._store, deliveries, self._clock)
        images = Images(
            state,
            ImageRoom(state),
            orders,
            self._store,
            login_for=self._login_for,
            is_responsive=partial(is_responsive, row.name),
            clock=self._clock,
            random=self._random,
        )
        host = Host(
            state,
            deliveries=deliveries,
            stops=stops,
            orders=orders,
            images=images,
            watch=self._watch(
                state,
                deliveries,
                stops=stops,
                orders=orders,
                listened=listened,
                was_unresponsive=partial(was_unresponsive, row.name),
            ),
            clock=self._clock,
        )
        images.listeners.append(partial(pull_failed, host))
        state.listeners += (images.on_change, orders.on_change, partial(changed, host))
        return host

    def _stops(self, state: HostState, deliveries: Deliveries) -> Stops:
        return Stops(
            state, self._store, self._reports, deliveries, clock=self._clock, reach=self._reach
        )

    def _watch(
        self,
        state: HostState,
        deliveries: Deliveries,
        *,
        stops: Stops,
        orders: Orders,
        listened: Callable[[], float],
        was_unresponsive: Callable[[], bool],
    ) -> Watch:
        return Watch(
            state,
            self._store,
            self._reports,
            stops=stops,
            orders=orders,
            downtime=Downtime(state, self._store, self._lost_after, self._clock),
            written=WrittenReports(state, self._store),
            claims=ClaimReplay(state, self._store, self._reports, deliveries, self._clock),
            clock=self._clock,
            listened=listened,
            was_unresponsive=was_unresponsive,
            random=self._random,
            metrics=self._metrics,
            reach=self._reach,
        )
