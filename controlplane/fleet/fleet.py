"""The fleet in memory: its hosts by region and node pool, and which of them takes a session."""

import asyncio
from collections.abc import Callable
from random import Random

from controlplane.clock import Clock
from controlplane.fleet.agent_client import AgentClient
from controlplane.fleet.contract import Host
from controlplane.fleet.host_link import HostLink
from controlplane.fleet.placement import (
    HostView,
    Strategy,
    Wanted,
    has_room,
    is_usable,
    rank_hosts,
)
from controlplane.fleet.watch import HostWatch
from controlplane.storage.fleet_store import AgentRow, FleetStore
from controlplane.storage.report_store import ReportStore


class Fleet:
    """Owns one link and one watch per agent."""

    def __init__(
        self,
        fleet_store: FleetStore,
        reports: ReportStore,
        *,
        dial: Callable[[AgentRow], AgentClient],
        placement_silence: float,
        unreachable_after: float,
        clock: Clock,
        random: Random,
    ) -> None:
        """Know no host yet; `load` reads them, `run` follows them; `dial` makes their clients."""
        self._dial = dial
        self._fleet_store = fleet_store
        self._reports = reports
        self._placement_silence = placement_silence
        self._unreachable_after = unreachable_after
        self._clock = clock
        self._random = random
        self._links: dict[str, HostLink] = {}
        self._watches: dict[str, HostWatch] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._awaited: set[str] = set()
        self._places: dict[tuple[str, str], list[HostLink]] = {}
        self._strategies: dict[str, Strategy] = {}
        self._changed = asyncio.Event()
        self._listeners: list[Callable[[HostLink], None]] = []

    async def load(self) -> None:
        """Read the agents from the store."""
        self._strategies = await self._fleet_store.strategies()
        for row in await self._fleet_store.agents():
            self.add(row)
        self._awaited = set(self._links)

    async def run(self) -> None:
        """Follow every host until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for name in self._watches:
                self._follow(group, name)
            await asyncio.Event().wait()  # hosts come and go, and there may be none

    def add(self, row: AgentRow) -> None:
        """Take an agent in, and follow it as soon as the fleet runs."""
        link = HostLink(row, self._dial(row))
        self._links[row.name] = link
        self._places.setdefault((row.region, row.node_pool), []).append(link)
        self._watches[row.name] = HostWatch(
            link,
            self._reports,
            clock=self._clock,
            random=self._random,
            changed=self._on_change,
            stop=self.stop_session,
        )
        if self._group is not None:
            self._follow(self._group, row.name)

    def remove(self, agent: str) -> None:
        """Forget an agent, while the fleet runs: no session is placed on it from now on.

        The fleet itself ends its watch and hangs up. Idempotent.
        """
        link = self._links.pop(agent, None)
        if link is None:
            return
        assert self._group is not None, "the fleet runs"
        self._places[link.row.region, link.row.node_pool].remove(link)
        del self._watches[agent]
        self._awaited.discard(agent)
        left = _leave(link, self._following.pop(agent))
        self._group.create_task(left, name=f"leave {agent}")
        self._on_change(link)

    async def close(self) -> None:
        """Hang up on every agent."""
        for link in self._links.values():
            await link.client.close()

    @property
    def ready(self) -> bool:
        """True once every agent has reconciled or is known to be out of reach.

        An agent that joins later does not count: the others are served meanwhile.
        """
        return all(self._watches[agent].tried.is_set() for agent in self._awaited)

    @property
    def links(self) -> list[HostLink]:
        """Every host."""
        return list(self._links.values())

    def link(self, agent: str) -> HostLink | None:
        """Give the link of an agent."""
        return self._links.get(agent)

    def set_strategy(self, node_pool: str, strategy: Strategy) -> None:
        """Fill the hosts of a node pool so from the next start on."""
        self._strategies[node_pool] = strategy

    def on_change(self, listener: Callable[[HostLink], None]) -> None:
        """Call `listener` whenever a host or its sessions changed, and when it was removed."""
        self._listeners.append(listener)

    def is_heard(self, agent: str | None) -> bool:
        """Tell whether an agent's sessions keep the status that it reported.

        False after `unreachable_after` of silence, never because the control plane started.
        """
        link = self._links.get(agent or "")
        if link is None or not link.reconciled:
            return True
        return link.silent_seconds(self._clock.monotonic()) <= self._unreachable_after

    def is_draining(self, agent: str | None) -> bool:
        """Tell whether an agent's host takes no new sessions."""
        link = self._links.get(agent or "")
        return link is not None and link.host is not None and link.host.draining

    def has_image(self, region: str, node_pool: str, image: str) -> bool:
        """Tell whether a host of a region and node pool that is in reach has pulled an image.

        It may be draining or full: that is no room (420), not a missing tag (404).
        """
        return any(
            image in view.host.images and view.silent_seconds <= self._unreachable_after
            for view in self._views(region, node_pool, frozenset())
        )

    def can_run_image(self, region: str, node_pool: str, image: str) -> bool:
        """Tell whether a host that takes sessions has pulled an image."""
        return any(
            image in view.host.images and is_usable(view, self._placement_silence)
            for view in self._views(region, node_pool, frozenset())
        )

    def hosts_with_room(self, region: str, node_pool: str, wanted: Wanted) -> list[Host]:
        """Give the healthy hosts of a region and node pool that could take a session."""
        views = self._views(region, node_pool, frozenset())
        return [view.host for view in views if has_room(view, wanted, self._placement_silence)]

    def take_host(
        self,
        region: str,
        node_pool: str,
        wanted: Wanted,
        internal_id: str,
        refused: frozenset[str],
    ) -> HostLink | None:
        """Choose a host and take what the attempt needs of it, in one step of the event loop."""
        ranked = rank_hosts(
            self._views(region, node_pool, refused),
            wanted,
            strategy=self._strategies.get(node_pool, Strategy.PACKED),
            max_silence=self._placement_silence,
            random=self._random,
        )
        if not ranked:
            return None
        link = self._links[ranked[0].agent]
        link.hold(internal_id, wanted)
        return link

    def may_free_up(
        self, region: str, node_pool: str, wanted: Wanted, refused: frozenset[str]
    ) -> bool:
        """Tell whether only a start slot is missing, which starts under way will free."""
        views = self._views(region, node_pool, refused)
        return any(has_room(view, wanted, self._placement_silence) for view in views)

    async def wait_for_change(self, timeout: float) -> None:
        """Wait until something returned to a host or a host changed, at most `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            return

    def give_back(self, link: HostLink, internal_id: str) -> None:
        """Return what an attempt holds, and let those who wait for a slot look again."""
        link.give_back(internal_id)
        self._on_change(link)

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

    def _follow(self, group: asyncio.TaskGroup, agent: str) -> None:
        self._following[agent] = group.create_task(
            self._watches[agent].run(), name=f"watch {agent}"
        )

    def _on_change(self, link: HostLink) -> None:
        self.wake()
        for listener in self._listeners:
            listener(link)

    def wake(self) -> None:
        """Let everyone who waits for a change look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _views(self, region: str, node_pool: str, refused: frozenset[str]) -> list[HostView]:
        now = self._clock.monotonic()
        links = self._places.get((region, node_pool), [])
        views = (link.view(now) for link in links if link.row.name not in refused)
        return [view for view in views if view is not None]


async def _leave(link: HostLink, following: "asyncio.Task[None]") -> None:
    following.cancel()
    try:
        await asyncio.wait({following})
    finally:
        await link.client.close()
