"""Metrics of the fleet as it is at the moment: sessions, agents, standbys, waits.

They are counted for every scrape, host after host, and the loop is left to others in between: with
100,000 sessions nothing is held up, and nothing is counted without a scrape. Hosts are summed by
region and node pool, which operators name; what accounts name is bounded.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from controlplane.catalog.open_streams import OpenStreams
from controlplane.domain.errors import StoreError
from controlplane.domain.status import shown_status
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.fleet.host.images import PullState
from controlplane.fleet.queue import HostQueue
from controlplane.fleet.standby_pools import StandbyPools
from controlplane.metrics.making import PREFIX, gauge
from controlplane.metrics_endpoint.room import PLACE, Place, Room
from controlplane.operators.agents import AgentState, state_of
from controlplane.pki.issuer import Issuer
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.audit import written
from controlplane.storage.tables.warm_pools import WarmPool
from tiltyard.contract import State
from tiltyard.runtime.bounded_names import BoundedNames

DATABASE_WAIT = 1.0
"""Seconds for which a scrape waits for the database; it has the rest all the same."""

_APPLICATION = ("region", "account", "application")
_AGENT_STATES = tuple(s.value for s in AgentState if s is not AgentState.REVOKED)
_STATES = tuple(state for state in State if not state.ended)
_OVERLAYS = ((False, True), (True, True), (False, False))
_STATUSES = sorted(
    {
        shown_status(state, draining=draining, heard=responsive)
        for state in _STATES
        for draining, responsive in _OVERLAYS
    }
)


@dataclass(frozen=True, slots=True)
class LiveParts:
    """Where the figures come from."""

    fleet: Fleet
    queue: HostQueue
    pools: StandbyPools
    streams: OpenStreams
    store: Store
    issuer: Issuer


@dataclass(slots=True)
class _Count:
    """One look at all hosts."""

    sessions: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    """By region, account, application and status."""
    unclaimed: Counter[Place] = field(default_factory=Counter)
    agents: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    pulls: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    expiry: dict[Place, float] = field(default_factory=dict)
    room: Room = field(default_factory=Room)


class LiveCollector(Collector):
    """Holds what was counted last; `refresh` counts again."""

    def __init__(self, parts: LiveParts) -> None:
        self._parts = parts
        self._names = BoundedNames()
        self._families: list[Metric] = []

    def collect(self) -> list[Metric]:
        """Give what was counted last."""
        return self._families

    async def refresh(self) -> None:
        """Count."""
        count = _Count()
        for host in self._parts.fleet.hosts:
            self._count_host(host, count)
            await asyncio.sleep(0)
        pools = self._parts.pools.sizes()
        present = {(account, name) for _, account, name, _ in count.sessions}
        self._names.keep(present | {(pool.account, pool.application) for pool, _, _ in pools})
        waiting = dict.fromkeys(count.unclaimed, 0) | self._parts.queue.waiting()
        self._families = [
            self._sessions(count),
            *self._standbys(pools),
            *_of_hosts(count),
            *count.room.families(),
            gauge(
                "starts_waiting",
                "Starts queued for a start slot of a host.",
                PLACE,
                waiting,
            ),
            gauge("open_streams", "Streams being sent.", (), {(): self._parts.streams.count}),
            gauge(
                "certificate_expiry_timestamp_seconds",
                "When the control plane's own certificates expire, in Unix time.",
                ("certificate",),
                {
                    ("controlplane",): self._parts.issuer.caller.expire,
                    ("authority",): self._parts.issuer.authority.expire,
                },
            ),
            await self._audited(),
        ]

    def _count_host(self, host: Host, count: _Count) -> None:
        fleet, place = self._parts.fleet, (host.row.region, host.row.node_pool)
        responsive = fleet.is_responsive(host.name)
        for state in _AGENT_STATES:
            count.agents.setdefault((*place, state), 0)
        count.agents[*place, state_of(fleet, host)] += 1
        count.unclaimed[place] += len(host.unclaimed)
        for state in PullState:
            count.pulls.setdefault((*place, state), 0)
        for pull in host.images.pulls:
            count.pulls[*place, pull.state] += 1
        if host.row.certificate_expire_ms is not None:
            expiry = host.row.certificate_expire_ms / 1000
            count.expiry[place] = min(expiry, count.expiry.get(place, expiry))
        count.room.add(
            place, host.report if responsive else None, fleet.view(host), fleet.placement_silence
        )
        status = {s: shown_status(s, draining=host.draining, heard=responsive) for s in _STATES}
        count.sessions.update(
            (
                place[0],
                session.identity.account,
                session.identity.application,
                status[session.state],
            )
            for session in host.live()
            if session.internal_id not in host.unclaimed
        )

    def _sessions(self, count: _Count) -> Metric:
        """Show every status of each application that has sessions in a region."""
        shown: Counter[tuple[str, ...]] = Counter()
        for (region, account, application, status), number in count.sessions.items():
            place = (region, *self._names.label((account, application)))
            for each in _STATUSES:
                shown[*place, each] += number if each == status else 0
        text = "Sessions that live, by the status that callers see."
        return gauge("sessions", text, (*_APPLICATION, "state"), shown)

    def _standbys(self, pools: Iterable[tuple[WarmPool, int, int]]) -> Iterator[Metric]:
        wanted: Counter[tuple[str, ...]] = Counter()
        ready: Counter[tuple[str, ...]] = Counter()
        for pool, size, count in pools:
            place = (pool.location, *self._names.label((pool.account, pool.application)))
            wanted[place] += size
            ready[place] += count
        yield gauge("standbys_wanted", "Standbys that warm pools want.", _APPLICATION, wanted)
        yield gauge("standbys_ready", "Standbys that can be claimed now.", _APPLICATION, ready)

    async def _audited(self) -> Metric:
        """Show how much was ever written; nothing while the database does not answer."""
        events = CounterMetricFamily(f"{PREFIX}_audit_events", "Lines written to the audit, ever.")
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(DATABASE_WAIT):
                events.add_metric([], await self._parts.store.read(written))
        return events


def _of_hosts(count: _Count) -> Iterator[Metric]:
    yield gauge("agents", "Agents by state.", (*PLACE, "state"), count.agents)
    yield gauge(
        "unclaimed_sessions",
        "Sessions on hosts without a valid ticket or a known account.",
        PLACE,
        count.unclaimed,
    )
    yield gauge(
        "image_pulls",
        "Pulls of images to hosts that are not over: waiting, made, or to be tried again.",
        (*PLACE, "state"),
        count.pulls,
    )
    yield gauge(
        "agent_certificate_expiry_timestamp_seconds",
        "When the first of the agents' certificates expires, in Unix time.",
        PLACE,
        count.expiry,
    )
