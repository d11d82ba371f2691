"""The fleet in memory: its hosts by region and node pool, and which of them takes a session."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from random import Random

from controlplane.agent_rpc.client import AgentClient
from controlplane.domain.contract import (
    Drain,
    HostSession,
)
from controlplane.domain.explanation import Explanation, explain
from controlplane.domain.placement import (
    HostView,
    ObstacleKind,
    Wanted,
    has_room,
    is_usable,
    rank_hosts,
)
from controlplane.fleet.host.claim_replay import HeldClaims
from controlplane.fleet.host.downtime import HostSilence
from controlplane.fleet.host.drain import HostDrain
from controlplane.fleet.host.stall_aware_clock import ListeningClock
from controlplane.fleet.host.standbys import Standbys
from controlplane.fleet.host.state import HostState
from controlplane.fleet.host.watch import HostWatch
from controlplane.fleet.node_pools import NodePools
from controlplane.fleet.unreported import UnreportedHosts
from controlplane.metrics.agents import FleetMetrics
from controlplane.storage.tables.claims import ClaimStore
from controlplane.storage.tables.fleet import AgentRow, FleetStore
from controlplane.storage.tables.hosts import HostStore
from controlplane.storage.tables.reports import ReportStore
from tiltyard.contract import NetworkMode
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.failpoints import Reach, no_failpoint
from tiltyard.runtime.logging.context import task_context


class Fleet:
    """Owns one host and one watch per agent."""

    def __init__(
        self,
        fleet_store: FleetStore,
        reports: ReportStore,
        hosts: HostStore,
        claims: ClaimStore,
        *,
        dial: Callable[[AgentRow], AgentClient],
        placement_silence: float,
        unreachable_after: float,
        lost_after: float,
        host_network_pools: frozenset[str] = frozenset(),
        clock: Clock,
        random: Random,
        reach: Reach = no_failpoint,
        metrics: FleetMetrics | None = None,
    ) -> None:
        """Know no host yet; `load` reads them, `run` follows them; `dial` makes their clients.

        `host_network_pools` are those of `NodePools`.
        """
        self._dial = dial
        self._fleet_store = fleet_store
        self._reports = reports
        self._hosts = hosts
        self._claims = claims
        self.standbys = Standbys()
        """Those of all hosts; who takes one claims it."""
        self.placement_silence = placement_silence
        """Seconds of silence after which no session is placed on a host."""
        self.unreachable_after = unreachable_after
        """Seconds of silence after which a host counts as out of reach."""
        self._lost_after = lost_after
        self._clock, self._listening = clock, ListeningClock(clock)
        self._random = random
        self._reach = reach
        self._metrics = metrics
        self._links: dict[str, HostState] = {}
        self._watches: dict[str, HostWatch] = {}
        self._drains: dict[str, HostDrain] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._awaited: set[str] = set()
        self._places: dict[tuple[str, str], list[HostState]] = {}
        self.node_pools = NodePools(host_network_pools)
        self.unreported = UnreportedHosts(
            unreachable_after=lambda: self.unreachable_after,
            listened=self._listening.now,
            clock=clock,
        )
        """The hosts that have not reported since this process started."""
        self._listeners: list[Callable[[HostState], None]] = [self.unreported.note]

    async def load(self) -> None:
        """Read the agents from the store."""
        self.node_pools.load(await self._fleet_store.node_pool_rules())
        for row in await self._fleet_store.agents():
            self.add(row)
        self._awaited = set(self._links)
        self.unreported.begin(self._links.values())

    async def run(self) -> None:
        """Follow every host until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self._listening.run(), name="listening")
            for name in self._watches:
                self._follow(group, name)
            await asyncio.Event().wait()  # hosts come and go, and there may be none

    def add(self, row: AgentRow) -> None:
        """Take an agent in, and follow it as soon as the fleet runs."""
        host = HostState(row, self._dial(row), self.standbys)
        self._links[row.name] = host
        self._places.setdefault((row.region, row.node_pool), []).append(host)
        self._drains[row.name] = drain = HostDrain(
            host, self._hosts, clock=self._clock, random=self._random, changed=self.tell_change
        )
        self._watches[row.name] = HostWatch(
            host,
            self._reports,
            drain,
            HostSilence(host, self._hosts, self._lost_after, self._clock),
            self._held_claims(host),
            clock=self._clock,
            listened=self._listening.now,
            random=self._random,
            changed=self.tell_change,
            stop=self.stop_session,
            reach=self._reach,
            metrics=self._metrics,
        )
        if self._group is not None:
            self._follow(self._group, row.name)

    def remove(self, agent: str) -> None:
        """Forget an agent, while the fleet runs: no session is placed on it from now on.

        The fleet itself ends its watch and hangs up. Idempotent.
        """
        host = self._links.pop(agent, None)
        if host is None:
            return
        assert self._group is not None, "the fleet runs"
        self._places[host.row.region, host.row.node_pool].remove(host)
        del self._watches[agent], self._drains[agent]
        self._awaited.discard(agent)
        self.unreported.drop(host)
        self.standbys.leave(agent)
        left = _leave(host, self._following.pop(agent))
        self._group.create_task(left, name=f"leave {agent}")
        self.tell_change(host)

    async def close(self) -> None:
        """Hang up on every agent."""
        for host in self._links.values():
            await host.client.close()

    @property
    def ready(self) -> bool:
        """True once every agent has reconciled or is known to be out of reach.

        An agent that joins later does not count: the others are served meanwhile.
        """
        return all(self._watches[agent].tried.is_set() for agent in self._awaited)

    @property
    def hosts(self) -> list[HostState]:
        """Every host."""
        return list(self._links.values())

    def host(self, agent: str) -> HostState | None:
        """Give the host of an agent."""
        return self._links.get(agent)

    def session(self, agent: str, internal_id: str) -> HostSession | None:
        """Give a session as its host reported it last; None when it is not known to live."""
        host = self._links.get(agent)
        return host.session(internal_id) if host is not None else None

    def on_change(self, listener: Callable[[HostState], None]) -> None:
        """Call `listener` whenever a host or its sessions changed, and when it was removed."""
        self._listeners.append(listener)

    def now(self) -> float:
        """Return the time by which hosts are evaluated: the seconds that this program listened."""
        return self._listening.now()

    def silent_seconds(self, host: HostState) -> float:
        """Tell for how long a host was silent while it was listened to."""
        return host.silent_seconds(self._listening.now())

    def is_responsive(self, agent: str | None) -> bool:
        """Return whether an agent's sessions keep the status that it reported.

        False after `unreachable_after` of silence, never because the control plane started.
        """
        host = self._links.get(agent or "")
        if host is None or not host.reconciled:
            return True
        return self.silent_seconds(host) <= self.unreachable_after

    def takes_claims(self, agent: str) -> bool:
        """Return whether standbys of an agent's host can be claimed now."""
        host = self._links.get(agent)
        if host is None or host.draining or host.is_newer or not host.reconciled:
            return False
        return self.silent_seconds(host) <= self.placement_silence

    def is_draining(self, agent: str | None) -> bool:
        """Return whether an agent's host takes no new sessions."""
        host = self._links.get(agent or "")
        return host is not None and host.draining

    def order_drain(self, agent: str, drain: Drain) -> None:
        """Have a host told an order that is in the database; placement goes by it at once."""
        if agent in self._drains:
            self._drains[agent].order(drain)

    async def drain_told(self, agent: str, timeout: float) -> None:
        """Wait until a host has taken its orders, at most `timeout` seconds, if it is heard."""
        host = self._links.get(agent)
        if host is None:
            return
        if self.silent_seconds(host) <= self.placement_silence:
            await self._drains[agent].told(timeout)

    def has_image(self, region: str, node_pool: str, image: str) -> bool:
        """Return whether a host of a region and node pool that is in reach has pulled an image.

        It may be draining or full: that is no room (420), not a missing tag (404).
        """
        return any(
            image in view.host.images and view.silent_seconds <= self.unreachable_after
            for view in self._views(region, node_pool)
        )

    def can_run_image(self, region: str, node_pool: str, image: str) -> bool:
        """Return whether a host that takes sessions has pulled an image."""
        return any(
            image in view.host.images and is_usable(view, self.placement_silence)
            for view in self._views(region, node_pool)
        )

    def hosts_of(self, region: str, node_pool: str) -> list[HostState]:
        """Give the hosts of a region and node pool, whatever their condition."""
        return list(self._places.get((region, node_pool), ()))

    def hosts_with_room(self, region: str, node_pool: str, wanted: Wanted) -> list[HostState]:
        """Give the healthy hosts of a region and node pool that could take a session."""
        views = self._views(region, node_pool)
        fit = (view for view in views if has_room(view, wanted, self.placement_silence))
        return [self._links[view.agent] for view in fit]

    def explain(
        self, region: str, node_pool: str, wanted: Wanted, network_mode: NetworkMode
    ) -> Explanation:
        """Tell of each host of a region and node pool what `take_host` would make of it."""
        now, allowed = self._listening.now(), self.node_pools.allows(node_pool, network_mode)

        def seen(host: HostState) -> HostView | ObstacleKind:
            if not allowed:
                return ObstacleKind.HOST_NETWORK
            unknown = ObstacleKind.NEWER if host.is_newer else ObstacleKind.CONNECTING
            return host.view(now, wanted.owner) or unknown

        hosts = self._places.get((region, node_pool), [])
        return explain(
            {host.name: seen(host) for host in hosts},
            wanted,
            strategy=self.node_pools.strategy(node_pool),
            max_silence=self.placement_silence,
        )

    def take_host(
        self,
        region: str,
        node_pool: str,
        wanted: Wanted,
        internal_id: str,
        refused: frozenset[str],
    ) -> HostState | None:
        """Choose a host and take what the attempt needs of it, in one step of the event loop."""
        now = self._listening.now()
        views = (
            host.view(now, wanted.owner)
            for host in self._places.get((region, node_pool), ())
            if host.has_start_slot and host.name not in refused
        )
        ranked = rank_hosts(
            (view for view in views if view is not None),
            wanted,
            strategy=self.node_pools.strategy(node_pool),
            max_silence=self.placement_silence,
            random=self._random,
        )
        if not ranked:
            return None
        host = self._links[ranked[0].agent]
        host.hold(internal_id, wanted)
        return host

    def hopeless(
        self, region: str, node_pool: str, wishes: Iterable[tuple[Wanted, frozenset[str]]]
    ) -> set[tuple[Wanted, frozenset[str]]]:
        """Give those for whom no host has room, not even once the starts under way have ended.

        A wish is what is wanted, and the agents that are not asked again. A host that has not
        reported since this process started may have room.
        """
        if self.unreported.count([(region, node_pool)], taking=True):
            return set()
        return self.without_room(region, node_pool, wishes)

    def without_room(
        self, region: str, node_pool: str, wishes: Iterable[tuple[Wanted, frozenset[str]]]
    ) -> set[tuple[Wanted, frozenset[str]]]:
        """As `hopeless`, but only hosts that have reported count."""
        left = set(wishes)
        for view in self._views(region, node_pool):
            left = {
                (wanted, refused)
                for wanted, refused in left
                if view.agent in refused or not has_room(view, wanted, self.placement_silence)
            }
            if not left:
                break
        return left

    def view(self, host: HostState) -> HostView | None:
        """Show a host as placement sees it now; None where nothing of it could be used."""
        return host.view(self._listening.now())

    def fitting(self, host: HostState, wishes: Iterable[Wanted]) -> list[Wanted]:
        """Give those of these that this one host has room for now."""
        view = self.view(host)
        if view is None or self._links.get(host.name) is not host:
            return []
        return [wanted for wanted in wishes if has_room(view, wanted, self.placement_silence)]

    def give_back(self, host: HostState, internal_id: str) -> None:
        """Return what an attempt holds."""
        host.give_back(internal_id)
        self.tell_change(host)

    def stop_session(self, agent: str, internal_id: str) -> "asyncio.Future[bool]":
        """Have a session, or what may have come of an attempt, stopped for certain.

        The task belongs to the fleet; its result is False when the process cannot be killed. A
        removed agent has nothing left to stop.
        """
        watch = self._watches.get(agent)
        if watch is not None:
            return watch.stop_session(internal_id)
        nothing: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        nothing.set_result(True)
        return nothing

    def _held_claims(self, host: HostState) -> HeldClaims:
        return HeldClaims(
            host, self._claims, self._reports, clock=self._clock, random=self._random
        )

    def _follow(self, group: asyncio.TaskGroup, agent: str) -> None:
        self._following[agent] = group.create_task(
            self._watches[agent].run(), name=f"watch {agent}", context=task_context(agent=agent)
        )

    def tell_change(self, host: HostState) -> None:
        """Tell every listener that a host, or what is held of it, changed."""
        for listener in self._listeners:
            listener(host)

    def _views(self, region: str, node_pool: str) -> Iterator[HostView]:
        now = self._listening.now()
        for host in self._places.get((region, node_pool), ()):
            view = host.view(now)
            if view is not None:
                yield view


async def _leave(host: HostState, following: "asyncio.Task[None]") -> None:
    following.cancel()
    try:
        await asyncio.wait({following})
    finally:
        await host.client.close()
