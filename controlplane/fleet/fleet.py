"""The fleet in memory: its hosts by region and node pool, and the choice of a host."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from random import Random

from controlplane.agent_rpc.client import AgentClient
from controlplane.domain.contract import HostSession, RegistryLogin
from controlplane.domain.explanation import Candidate, explain
from controlplane.domain.placement import (
    HostView,
    ObstacleKind,
    Wanted,
    has_room,
    is_usable,
    rank_hosts,
)
from controlplane.domain.start_failures import Owner
from controlplane.fleet.host.host import Host, Shared
from controlplane.fleet.host.images import PullState
from controlplane.fleet.host.stall_aware_clock import ListeningClock
from controlplane.fleet.host.standbys import Standbys
from controlplane.fleet.node_pools import NodePools
from controlplane.fleet.unreported import UnreportedHosts
from controlplane.metrics.agents import FleetMetrics
from controlplane.storage.engine.store import Store
from controlplane.storage.tables import fleet as rows
from controlplane.storage.tables.fleet import AgentRow
from controlplane.storage.tables.reports import Reports
from tiltyard.contract import NetworkMode
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.failpoints import Reach, no_failpoint
from tiltyard.runtime.tasks import TaskOwner

_BEST_PULLS = (PullState.PULLING, PullState.QUEUED, PullState.FAILED, PullState.NO_ROOM)


class Fleet:
    """Owns the hosts."""

    def __init__(
        self,
        store: Store,
        reports: Reports,
        *,
        dial: Callable[[AgentRow], AgentClient],
        login_for: Callable[[str], Awaitable[RegistryLogin | None]],
        unresponsive_after: float,
        unreachable_after: float,
        lost_after: float,
        host_network_pools: frozenset[str] = frozenset(),
        clock: Clock,
        random: Random,
        reach: Reach = no_failpoint,
        metrics: FleetMetrics | None = None,
    ) -> None:
        """Start without hosts. `login_for` returns the login for an image's registry."""
        self._store = store
        self.reports = reports
        self.standbys = Standbys()
        self.unresponsive_after = unresponsive_after
        """Seconds without a report after which a host gets no new sessions."""
        self.unreachable_after = unreachable_after
        """Seconds without a report after which a host counts as unreachable."""
        self._listening = ListeningClock(clock)
        self._random = random
        self._shared = Shared(
            store,
            reports,
            dial=dial,
            login_for=login_for,
            standbys=self.standbys,
            lost_after=lost_after,
            listened=self._listening.now,
            is_responsive=self.is_responsive,
            queue_stop=self.queue_stop,
            clock=clock,
            random=random,
            reach=reach,
            metrics=metrics or FleetMetrics(),
        )
        self._hosts: dict[str, Host] = {}
        self._group: asyncio.TaskGroup | None = None
        self._stopping = TaskOwner[None]()
        self._awaited: tuple[Host, ...] = ()
        self._places: dict[tuple[str, str], list[Host]] = {}
        self.node_pools = NodePools(host_network_pools)
        self.unreported = UnreportedHosts(
            unreachable_after=lambda: self.unreachable_after,
            listened=self._listening.now,
            clock=clock,
        )
        self._listeners: list[Callable[[Host], None]] = [self.unreported.note]

    async def load(self) -> None:
        """Read node pools and agents from the store."""
        pools = await self._store.look(rows.node_pools)
        self.node_pools.rules = {pool.name: pool.rules for pool in pools}
        for row in await self._store.look(rows.agents):
            self.add(row)
        self._awaited = tuple(self.hosts)
        self.unreported.begin(self._awaited)

    async def run(self) -> None:
        """Follow every host until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self._listening.run(), name="listening")
            for host in self.hosts:
                host.start(group)
            await asyncio.Event().wait()  # hosts come and go, and there may be none

    def add(self, row: AgentRow) -> None:
        """Add an agent, and follow its host as soon as the fleet runs."""
        host = Host(row, self._shared, self._notify)
        self._hosts[row.name] = host
        self._places.setdefault((row.region, row.node_pool), []).append(host)
        if self._group is not None:
            host.start(self._group)

    def remove(self, agent: str) -> None:
        """Remove an agent; its host gets no more sessions. Idempotent."""
        host = self._hosts.pop(agent, None)
        if host is None:
            return
        host.removed = True
        self._places[host.row.region, host.row.node_pool].remove(host)
        self.standbys.leave(agent)
        self._stopping.start(host.stop(), f"stop following {agent}")
        host.notify()

    async def close(self) -> None:
        """Stop following the hosts and close their connections."""
        for host in self.hosts:
            await host.stop()
        await self._stopping.wait()

    @property
    def ready(self) -> bool:
        """True once every agent known at the start has reconciled or could not be reached."""
        return all(host.tried or host.removed for host in self._awaited)

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
        return host.session(internal_id) if host is not None else None

    def subscribe(self, listener: Callable[[Host], None]) -> None:
        """Call `listener` on every change of a host or its sessions, and on its removal."""
        self._listeners.append(listener)

    def now(self) -> float:
        """Return the time used for evaluating hosts: see `ListeningClock`."""
        return self._listening.now()

    def report_age(self, host: Host) -> float:
        """Return the seconds since a host's last report, without stalls of this program."""
        return host.report_age(self._listening.now())

    def is_responsive(self, agent: str | None) -> bool:
        """Return whether an agent reported within `unreachable_after`.

        True until it has reconciled with this process, so that a restart changes no status; and
        for None, a start without a host. False for an unknown agent.
        """
        if agent is None:
            return True
        host = self._hosts.get(agent)
        if host is None or not host.reconciled:
            return host is not None
        return self.report_age(host) <= self.unreachable_after

    def takes_claims(self, agent: str) -> bool:
        """Return whether standbys on an agent's host can be claimed now."""
        host = self._hosts.get(agent)
        if host is None or host.draining or host.is_newer or not host.reconciled:
            return False
        return not host.in_doubt and self.report_age(host) <= self.unresponsive_after

    def is_draining(self, agent: str | None) -> bool:
        """Return whether an agent's host is draining."""
        host = self._hosts.get(agent or "")
        return host is not None and host.draining

    def look_at_images(self) -> None:
        """Schedule a comparison of actual and desired images on every host."""
        for host in self.hosts:
            host.images.look()

    def pull_state(self, region: str, node_pool: str, images: Sequence[str]) -> PullState | None:
        """Return the best state of the pulls of these images in a region and node pool, if any."""
        hosts = self.hosts_of(region, node_pool)
        states = {host.images.state_of(image) for host in hosts for image in images}
        return next((state for state in _BEST_PULLS if state in states), None)

    def preparation_errors(self, region: str, node_pool: str, shape: str) -> dict[str, str]:
        """Return why hosts of a region and node pool cannot prepare a shape, by address."""
        reports = (host.report for host in self.hosts_of(region, node_pool))
        return {
            report.public_address: report.prepared[shape].error
            for report in reports
            if report is not None and shape in report.prepared and report.prepared[shape].error
        }

    def has_image(self, region: str, node_pool: str, image: str, *, usable: bool = False) -> bool:
        """Return whether a reachable host of a region and node pool has pulled an image.

        A draining or full host counts unless `usable`: no room is 420, a missing tag 404.
        """
        return any(
            image in view.host.images
            and (
                is_usable(view, self.unresponsive_after)
                if usable
                else view.report_age <= self.unreachable_after
            )
            for view in self._views(self.hosts_of(region, node_pool))
        )

    def hosts_of(self, region: str, node_pool: str) -> list[Host]:
        """Return all hosts of a region and node pool, whatever their state."""
        return list(self._places.get((region, node_pool), ()))

    def hosts_with_room(self, region: str, node_pool: str, wanted: Wanted) -> list[Host]:
        """Return the healthy hosts of a region and node pool with room for a session."""
        views = self._views(self.hosts_of(region, node_pool))
        fit = (view for view in views if has_room(view, wanted, self.unresponsive_after))
        return [self._hosts[view.agent] for view in fit]

    def explain(
        self, region: str, node_pool: str, wanted: Wanted, network_mode: NetworkMode
    ) -> tuple[Candidate, ...]:
        """Explain how `take_host` would rank the hosts of a region and node pool."""
        now = self._listening.now()
        allowed = self.node_pools.allows(node_pool, network_mode)

        def seen(host: Host) -> HostView | ObstacleKind:
            if not allowed:
                return ObstacleKind.HOST_NETWORK
            unknown = ObstacleKind.NEWER if host.is_newer else ObstacleKind.CONNECTING
            return host.view(now, wanted.owner) or unknown

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
        hosts = self.hosts_of(region, node_pool)
        able = (host for host in hosts if host.can_begin(wanted) and host.name not in refused)
        ranked = rank_hosts(
            self._views(able, wanted.owner),
            wanted,
            strategy=self.node_pools.strategy(node_pool),
            max_age=self.unresponsive_after,
            random=self._random,
        )
        if not ranked:
            return None
        host = self._hosts[ranked[0].agent]
        host.hold(internal_id, wanted)
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
        left = set(asked)
        for view in self._views(self.hosts_of(region, node_pool)):
            left = {
                (wanted, refused)
                for wanted, refused in left
                if view.agent in refused or not has_room(view, wanted, self.unresponsive_after)
            }
            if not left:
                break
        return left

    def view(self, host: Host) -> HostView | None:
        """Return a host as placement sees it now; None if it is not usable."""
        return host.view(self._listening.now())

    def fitting(self, host: Host, asked: Iterable[Wanted]) -> set[Wanted]:
        """Return the requests that this host has room for now."""
        view = self.view(host)
        if view is None or host.removed:
            return set()
        return {wanted for wanted in asked if has_room(view, wanted, self.unresponsive_after)}

    def give_back(self, host: Host, internal_id: str) -> None:
        """Release what an attempt holds."""
        host.give_back(internal_id)
        host.notify()

    def stop_session(self, agent: str, internal_id: str) -> "asyncio.Future[bool]":
        """Stop a session, or whatever an attempt left, and retry until the host confirms.

        The result is False if the process cannot be killed.
        """
        host = self._hosts.get(agent)
        if host is not None:
            return host.stops.start(internal_id)
        nothing: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        nothing.set_result(True)
        return nothing

    def queue_stop(self, agent: str, internal_id: str) -> None:
        """Stop a session because of what a host has reported, a few at a time."""
        host = self._hosts.get(agent)
        if host is not None:
            host.stops.queue(internal_id)

    def _notify(self, host: Host) -> None:
        for listener in self._listeners:
            listener(host)

    def _views(self, hosts: Iterable[Host], owner: Owner = ("", "")) -> Iterator[HostView]:
        now = self._listening.now()
        views = (host.view(now, owner) for host in hosts)
        return (view for view in views if view is not None)
