"""The fleet in memory: its hosts by region and node pool, and the choice of a host."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from random import Random

from controlplane.domain.applications.images import UNKNOWN
from controlplane.domain.applications.privileges import Privileges
from controlplane.domain.applications.pulls import Pull, PullState
from controlplane.domain.hosts.agents import Agent
from controlplane.domain.hosts.contract import HostSession
from controlplane.domain.placement.explanation import Candidate, explain
from controlplane.domain.placement.host_index import Moment
from controlplane.domain.placement.node_pools import NodePools
from controlplane.domain.placement.placement import (
    HostView,
    NodePoolRules,
    ObstacleKind,
    Wanted,
    has_room,
)
from controlplane.fleet.host.host import Host
from controlplane.fleet.host.standbys import Standbys
from controlplane.fleet.host_maker import HostMaker
from controlplane.fleet.ordered_stops import OrderedStops
from controlplane.fleet.place import Place
from controlplane.fleet.rows import FleetRows
from controlplane.fleet.unreported import UnreportedHosts
from controlplane.storage.engine.store import Store
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.stall_aware_clock import ListeningClock
from tiltyard.runtime.tasks import TaskOwner

_NOWHERE = Place()

_BEST_PULLS = (PullState.PULLING, PullState.QUEUED, PullState.FAILED, PullState.NO_ROOM)


class Fleet:
    """Owns the hosts."""

    def __init__(
        self,
        store: Store,
        maker: HostMaker,
        *,
        unresponsive_after: float,
        unreachable_after: float,
        host_network_pools: frozenset[str] = frozenset(),
        clock: Clock,
        random: Random,
    ) -> None:
        """Start without hosts."""
        self._maker = maker
        self._rows = FleetRows(store, self, clock)
        self.standbys = Standbys()
        self.unresponsive_after = unresponsive_after
        """Seconds without a report after which a host gets no new sessions."""
        self.unreachable_after = unreachable_after
        """Seconds without a report after which a host counts as unreachable."""
        self._listening = ListeningClock(clock)
        self._random = random
        self._hosts: dict[str, Host] = {}
        self._group: asyncio.TaskGroup | None = None
        self._stopping = TaskOwner[None]()
        self._awaited: tuple[Host, ...] = ()
        self._places: dict[tuple[str, str], Place] = {}  # By region and node pool
        self.node_pools = NodePools(host_network_pools)
        self.unreported = UnreportedHosts(
            unreachable_after=lambda: self.unreachable_after,
            listened=self._listening.now,
            clock=clock,
        )
        self._listeners: list[Callable[[Host], None]] = [self.unreported.note]
        self._pull_listeners: list[Callable[[Host, Pull], None]] = []
        self._ordered_stops = OrderedStops(store, self.host, clock)

    async def load(self) -> None:
        """Read node pools and agents from the store, and follow their changes from now on.

        Raises:
            StoreError: They cannot be read.
        """
        await self._rows.load()
        self._awaited = tuple(self.hosts)
        self.unreported.begin(self._awaited)

    async def caught_up(self) -> None:
        """Wait until the fleet has what was committed before, or could not read it yet."""
        await self._rows.caught_up()

    async def run(self) -> None:
        """Follow every host until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self._listening.run(), name="listening")
            for host in self.hosts:
                host.start(group)
            await asyncio.Event().wait()  # hosts come and go, and there may be none

    def set_rules(self, rules: dict[str, NodePoolRules]) -> None:
        """Replace the rules of all node pools."""
        self.node_pools.rules = rules

    def set_agents(self, found: Collection[Agent], read: Collection[str] | None) -> None:
        """Apply the agents in service of those that were `read`, None for all.

        An agent that enrols again, or with another address or place, has another host.
        """
        names = {row.name for row in found}
        for name in set(self._hosts if read is None else read) - names:
            self.remove(name)
        for row in found:
            host = self._hosts.get(row.name)
            if host is not None and _is_same(host.state.row, row):
                host.apply_row(row)
            else:
                self.remove(row.name)
                self.add(row)

    def add(self, row: Agent) -> None:
        """Add an agent, and follow its host as soon as the fleet runs."""
        host = self._maker.make_host(
            row,
            standbys=self.standbys,
            listened=self._listening.now,
            is_responsive=self.is_responsive,
            was_unresponsive=self._was_unresponsive,
            changed=self._notify,
            pull_failed=self._notify_of_pull,
        )
        self._hosts[row.name] = host
        self._places.setdefault((row.region, row.node_pool), Place()).add(host)
        if self._group is not None:
            host.start(self._group)

    def remove(self, agent: str) -> None:
        """Remove an agent; its host gets no more sessions. Idempotent."""
        host = self._hosts.pop(agent, None)
        if host is None:
            return
        host.state.remove()
        self._place(host.state.row.region, host.state.row.node_pool).remove(host)
        self.standbys.leave(agent)
        self._stopping.start(host.stop(), f"stop following {agent}")
        host.state.notify()

    async def close(self) -> None:
        """Stop following the hosts and close their connections."""
        await self._ordered_stops.close()
        await self._rows.close()
        for host in self.hosts:
            await host.stop()
        await self._stopping.wait()

    @property
    def ready(self) -> bool:
        """True once every agent known at the start has reconciled or could not be reached."""
        return all(host.state.tried or host.state.removed for host in self._awaited)

    @property
    def hosts(self) -> list[Host]:
        """Every host."""
        return list(self._hosts.values())

    def host(self, agent: str) -> Host | None:
        """Return the host of an agent."""
        return self._hosts.get(agent)

    def session(self, agent: str, internal_id: str) -> HostSession | None:
        """Return the last report of a session; None if it is not known to live."""
        host = self._hosts.get(agent)
        return host.state.session(internal_id) if host is not None else None

    def subscribe(self, listener: Callable[[Host], None]) -> None:
        """Call `listener` on every change of a host or its sessions, and on its removal."""
        self._listeners.append(listener)

    def subscribe_to_failed_pulls(self, listener: Callable[[Host, Pull], None]) -> None:
        """Call `listener` whenever a host refused a pull."""
        self._pull_listeners.append(listener)

    def now(self) -> float:
        """Return the time used for evaluating hosts: see `ListeningClock`."""
        return self._listening.now()

    def report_age(self, host: Host) -> float:
        """Return the seconds since a host's last report, without stalls of this program."""
        return host.state.report_age(self._listening.now())

    def is_responsive(self, agent: str | None) -> bool:
        """Return whether an agent reported within `unreachable_after`.

        True until it has reconciled with this process, so that a restart changes no status; and
        for None, a start without a host. False for an unknown agent.
        """
        if agent is None:
            return True
        host = self._hosts.get(agent)
        if host is None or not host.state.reconciled:
            return host is not None
        return self.report_age(host) <= self.unreachable_after

    def takes_claims(self, agent: str) -> bool:
        """Return whether standbys on an agent's host can be claimed now."""
        host = self._hosts.get(agent)
        if host is None or host.state.draining or host.state.is_newer or not host.state.reconciled:
            return False
        return not host.state.in_doubt and self.report_age(host) <= self.unresponsive_after

    def is_draining(self, agent: str | None) -> bool:
        """Return whether an agent's host is draining."""
        host = self._hosts.get(agent or "")
        return host is not None and host.state.draining

    def look_at_images(self) -> None:
        """Schedule a comparison of actual and desired images on every host."""
        for host in self.hosts:
            host.images.look()

    def retry_pulls(self) -> None:
        """Retry the pulls that have failed, such as after a change of a registry's login."""
        for host in self.hosts:
            host.images.retry_failed()

    def pull_state(self, region: str, node_pool: str, images: Sequence[str]) -> PullState | None:
        """Return the best state of the pulls of these images in a region and node pool, if any."""
        hosts = self.hosts_of(region, node_pool)
        states = {host.images.state_of(image) for host in hosts for image in images}
        return next((state for state in _BEST_PULLS if state in states), None)

    def platforms(self, places: Iterable[tuple[str, str]]) -> list[str]:
        """Return the platform of each host of regions and node pools; UNKNOWN if not reported.

        Without lost hosts.
        """
        hosts = (host for place in places for host in self.hosts_of(*place))
        return [
            UNKNOWN if host.state.report is None else host.state.report.platform
            for host in hosts
            if host.state.lost is None
        ]

    def failed_pull(self, region: str, node_pool: str, images: Sequence[str]) -> Pull | None:
        """Return the pull of these images that failed last in a region and node pool, if any."""
        hosts = self.hosts_of(region, node_pool)
        pulls = [host.images.failed_pull(image) for host in hosts for image in images]
        failed = [pull for pull in pulls if pull is not None]
        return max(failed, key=lambda pull: pull.failed or 0.0, default=None)

    def preparation_errors(self, region: str, node_pool: str, shape: str) -> dict[str, str]:
        """Return why hosts of a region and node pool cannot prepare a shape, by address."""
        reports = (host.state.report for host in self.hosts_of(region, node_pool))
        return {
            report.public_address: report.prepared[shape].error
            for report in reports
            if report is not None and shape in report.prepared and report.prepared[shape].error
        }

    def has_image(self, region: str, node_pool: str, image: str, *, usable: bool = False) -> bool:
        """Return whether a reachable host of a region and node pool has pulled an image.

        A draining or full host counts unless `usable`: no room is 420, a missing tag 404.
        """
        index = self._place(region, node_pool).index
        if usable:
            return index.has_usable(image, self._moment())
        return index.has_image(image, self._moment(self.unreachable_after))

    def agents_with(self, region: str, node_pool: str, image: str) -> list[str]:
        """Return the hosts of a region and node pool that had an image by their last report."""
        return self._place(region, node_pool).index.agents_with(image)

    def may_have_image(self, region: str, node_pool: str, image: str) -> bool:
        """Return whether a host that does not answer may have pulled an image."""
        place = (region, node_pool)
        return self.unreported.is_any_at(place) or self._place(*place).index.once_had(image)

    def hosts_of(self, region: str, node_pool: str) -> list[Host]:
        """Return all hosts of a region and node pool, whatever their state."""
        return self._place(region, node_pool).hosts

    def revision_of(self, region: str, node_pool: str) -> int:
        """Return a number that grows when hosts there come, go or change health or images."""
        return self._place(region, node_pool).revision

    def hosts_with_room(self, region: str, node_pool: str, wanted: Wanted) -> list[Host]:
        """Return the healthy hosts of a region and node pool with room for a session."""
        index = self._place(region, node_pool).index
        return [self._hosts[agent] for agent in index.with_room(wanted, self._moment())]

    def explain(
        self, region: str, node_pool: str, wanted: Wanted, privileges: Privileges
    ) -> tuple[Candidate, ...]:
        """Explain how `take_host` would rank the hosts of a region and node pool."""
        now = self._listening.now()
        denied = self.node_pools.denied(node_pool, privileges)

        def seen(host: Host) -> HostView | ObstacleKind:
            if denied.host_network:
                return ObstacleKind.HOST_NETWORK
            if denied.capabilities:
                return ObstacleKind.CAPABILITIES
            unknown = ObstacleKind.NEWER if host.state.is_newer else ObstacleKind.CONNECTING
            return host.state.view(now, wanted.owner) or unknown

        return explain(
            {host.name: seen(host) for host in self.hosts_of(region, node_pool)},
            wanted,
            strategy=self.node_pools.strategy(node_pool),
            max_age=self.unresponsive_after,
        )

    def take_host(
        self,
        region: str,
        node_pool: str,
        wanted: Wanted,
        *,
        internal_id: str,
        refused: frozenset[str],
    ) -> Host | None:
        """Choose a host and reserve what the attempt needs, in one step of the event loop."""
        agent = self._place(region, node_pool).index.best(
            wanted,
            self._moment(),
            strategy=self.node_pools.strategy(node_pool),
            random=self._random,
            refused=refused,
        )
        if agent is None:
            return None
        host = self._hosts[agent]
        host.state.hold(internal_id, wanted)
        return host

    def hopeless(
        self,
        region: str,
        node_pool: str,
        asked: Iterable[tuple[Wanted, frozenset[str]]],
        *,
        reported_only: bool = False,
    ) -> set[tuple[Wanted, frozenset[str]]]:
        """Return the requests for which no host has capacity, even after the starts under way.

        Each request has the agents that have refused it. A host that has not reported since this
        process started may have room, unless `reported_only`.
        """
        if not reported_only and self.unreported.count([(region, node_pool)], taking=True):
            return set()
        return self._place(region, node_pool).index.lacking(asked, self._moment())

    def count_unresponsive(
        self, region: str, node_pool: str, wanted: Wanted, *, refused: frozenset[str]
    ) -> int:
        """Count the unresponsive hosts that may have room for a start."""
        index = self._place(region, node_pool).index
        return index.count_unresponsive(wanted, refused, self._moment())

    def view(self, host: Host) -> HostView | None:
        """Return a host as placement sees it now; None if it is not usable."""
        return host.state.view(self._listening.now())

    def fitting(self, host: Host, asked: Iterable[Wanted]) -> set[Wanted]:
        """Return the requests that this host has room for now."""
        view = self.view(host)
        if view is None or host.state.removed:
            return set()
        return {wanted for wanted in asked if has_room(view, wanted, self.unresponsive_after)}

    def give_back(self, host: Host, internal_id: str) -> None:
        """Release what an attempt holds."""
        host.state.give_back(internal_id)
        host.state.notify()

    def _was_unresponsive(self, agent: str) -> bool:
        """Return whether an agent gets no starts or no calls before its next report."""
        host = self._hosts.get(agent)
        limit = min(self.unresponsive_after, self.unreachable_after)
        return host is not None and self.report_age(host) > limit

    def _notify(self, host: Host) -> None:
        for listener in self._listeners:
            listener(host)

    def _notify_of_pull(self, host: Host, pull: Pull) -> None:
        for listener in self._pull_listeners:
            listener(host, pull)

    def _place(self, region: str, node_pool: str) -> Place:
        return self._places.get((region, node_pool), _NOWHERE)

    def _moment(self, max_age: float | None = None) -> Moment:
        age = self.unresponsive_after if max_age is None else max_age
        return Moment(now=self._listening.now(), max_age=age)


def _is_same(known: Agent, row: Agent) -> bool:
    """Return whether two rows of an agent are of the same host at the same address and place."""
    return (known.id, known.address, known.region, known.node_pool) == (
        row.id,
        row.address,
        row.region,
        row.node_pool,
    )
