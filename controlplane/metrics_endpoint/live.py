"""Metrics of the current fleet, counted for each scrape; yields to the loop between hosts."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client import Metric
from prometheus_client.registry import Collector

from controlplane.access.open_streams import OpenStreams
from controlplane.domain.applications.pulls import PullState
from controlplane.domain.applications.warm_pools import WarmPool
from controlplane.domain.hosts.contract import HostReport
from controlplane.domain.placement.placement import HostView, is_usable
from controlplane.domain.sessions.status import shown_status
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.fleet.queue import HostQueue
from controlplane.fleet.standby_pools import StandbyPools
from controlplane.metrics.making import gauge
from controlplane.operators.agents import AgentState, state_of
from controlplane.pki.issuer import Issuer
from controlplane.webhooks.deliverer import Deliverer
from tiltyard.contract import NANO, Protocol, Resources, State
from tiltyard.runtime.bounded_names import BoundedNames

Place = tuple[str, str]  # A region and a node pool
PLACE = ("region", "node_pool")

_USES = {
    "capacity": "of the responsive hosts",
    "reserved": "that sessions have reserved on the responsive hosts",
    "free": "free on the hosts that take sessions now, without those held by starts in progress",
}
_APPLICATION = ("region", "account", "application")
_AGENT_STATES = tuple(s.value for s in AgentState if s is not AgentState.REVOKED)
_STATES = tuple(state for state in State if not state.ended)
_OVERLAYS = ((False, True), (True, True), (False, False))
_STATUSES = sorted(
    {
        shown_status(state, draining=draining, responsive=responsive)
        for state in _STATES
        for draining, responsive in _OVERLAYS
    }
)


@dataclass(slots=True)
class Room:
    """Sums of resources over hosts, by place."""

    _of: dict[str, dict[Place, Resources]] = field(
        default_factory=lambda: {use: {} for use in _USES}
    )
    _free_ports: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    _free_sessions: Counter[Place] = field(default_factory=Counter)

    def add(
        self, place: Place, host: HostReport | None, view: HostView | None, max_age: float
    ) -> None:
        """Add one host; None if it is unresponsive or has no usable view."""
        is_free = view is not None and is_usable(view, max_age)
        capacity = host.capacity if host else Resources()
        reserved = host.reserved if host else Resources()
        free = _left(capacity - reserved - view.held) if host and view and is_free else Resources()
        for use, resources in {"capacity": capacity, "reserved": reserved, "free": free}.items():
            self._of[use][place] = self._of[use].get(place, Resources()) + resources
        usable = host if host and is_free else None
        tcp = (*place, Protocol.TCP.value)
        udp = (*place, Protocol.UDP.value)
        self._free_ports[tcp] += usable.free_tcp_ports if usable else 0
        self._free_ports[udp] += usable.free_udp_ports if usable else 0
        self._free_sessions[place] += usable.free_sessions if usable else 0

    def families(self) -> Iterator[Metric]:
        """Yield the sums."""
        for use, of_what in _USES.items():
            sums = self._of[use].items()
            cores = {place: each.nano_cpus / NANO for place, each in sums}
            memory = {place: each.memory_bytes for place, each in sums}
            yield gauge(f"{use}_cores", f"Cores {of_what}.", PLACE, cores)
            yield gauge(f"{use}_memory_bytes", f"Memory {of_what}.", PLACE, memory)
            yield gauge(
                f"{use}_gpus", f"GPUs {of_what}.", PLACE, {p: each.gpus for p, each in sums}
            )
        yield gauge(
            "free_ports",
            "Host ports free on the hosts that take sessions now.",
            (*PLACE, "protocol"),
            self._free_ports,
        )
        yield gauge(
            "free_session_slots",
            "Sessions that fit under max_sessions of the hosts that take sessions now.",
            PLACE,
            self._free_sessions,
        )


def _left(free: Resources) -> Resources:
    """Clamp to zero: an overcommitted host must not reduce the sums."""
    return Resources(max(0, free.nano_cpus), max(0, free.memory_bytes), max(0, free.gpus))


@dataclass(slots=True)
class _Count:
    """Counts over all hosts."""

    sessions: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    """Sessions by region, account, application and status."""
    unclaimed: Counter[Place] = field(default_factory=Counter)
    agents: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    pulls: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    image_bytes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Bytes of images by region, node pool and account."""
    expiry: dict[Place, float] = field(default_factory=dict)
    room: Room = field(default_factory=Room)


@dataclass(slots=True, eq=False)
class LiveCollector(Collector):
    """Holds the last counts; `refresh` updates them."""

    fleet: Fleet
    queue: HostQueue
    pools: StandbyPools
    streams: OpenStreams
    issuer: Issuer
    deliverer: Deliverer
    _names: BoundedNames = field(default_factory=BoundedNames, init=False)
    _image_owners: BoundedNames = field(default_factory=BoundedNames, init=False)
    _families: list[Metric] = field(default_factory=list, init=False)

    def collect(self) -> list[Metric]:
        """Return the last counts."""
        return self._families

    async def refresh(self) -> None:
        """Update the counts."""
        count = _Count()
        for host in self.fleet.hosts:
            self._count_host(host, count)
            await asyncio.sleep(0)
        pools = self.pools.sizes()
        present = {(account, name) for _, account, name, _ in count.sessions}
        self._names.keep(present | {(pool.account, pool.application) for pool, _, _ in pools})
        waiting = dict.fromkeys(count.unclaimed, 0) | self.queue.waiting()
        self._families = [
            self._sessions(count),
            *self._standbys(pools),
            self._images(count),
            *_of_hosts(count),
            *count.room.families(),
            gauge("starts_waiting", "Starts queued for a start slot of a host.", PLACE, waiting),
            *_of_webhooks(self.deliverer),
            gauge("open_streams", "Streams being sent.", (), {(): self.streams.count}),
            gauge(
                "certificate_expiry_timestamp_seconds",
                "When the control plane's own certificates expire, in Unix time.",
                ("certificate",),
                {
                    ("controlplane",): self.issuer.caller.expire,
                    ("authority",): self.issuer.authority.expire,
                },
            ),
        ]

    def _count_host(self, host: Host, count: _Count) -> None:
        fleet = self.fleet
        place = (host.state.row.region, host.state.row.node_pool)
        responsive = fleet.is_responsive(host.name)
        for state in _AGENT_STATES:
            count.agents.setdefault((*place, state), 0)
        count.agents[*place, state_of(fleet, host)] += 1
        count.unclaimed[place] += len(host.state.unclaimed)
        for state in PullState:
            count.pulls.setdefault((*place, state), 0)
        for pull in host.images.pulls:
            count.pulls[*place, pull.state] += 1
        for account, size in host.images.room.held:
            count.image_bytes[*place, account] += size
        expiry = host.state.row.certificate_expire
        if expiry is not None:
            count.expiry[place] = min(expiry, count.expiry.get(place, expiry))
        count.room.add(
            place,
            host.state.report if responsive else None,
            fleet.view(host),
            fleet.unresponsive_after,
        )
        status = {
            s: shown_status(s, draining=host.state.draining, responsive=responsive)
            for s in _STATES
        }
        count.sessions.update(
            (
                place[0],
                session.account,
                session.application,
                status[session.state],
            )
            for session in host.state.live()
            if session.internal_id not in host.state.unclaimed
        )

    def _sessions(self, count: _Count) -> Metric:
        """Return session counts with all statuses by region and application."""
        shown: Counter[tuple[str, ...]] = Counter()
        for (region, account, application, status), number in count.sessions.items():
            place = (region, *self._names.label((account, application)))
            for each in _STATUSES:
                shown[*place, each] += number if each == status else 0
        text = "Live sessions, by the status that callers see."
        return gauge("sessions", text, (*_APPLICATION, "state"), shown)

    def _images(self, count: _Count) -> Metric:
        self._image_owners.keep({(account,) for _, _, account in count.image_bytes})
        shown: Counter[tuple[str, ...]] = Counter()
        for (region, node_pool, account), size in count.image_bytes.items():
            shown[region, node_pool, *self._image_owners.label((account,))] += size
        text = "Unpacked bytes of an account's images on hosts."
        return gauge("image_bytes", text, (*PLACE, "account"), shown)

    def _standbys(self, pools: Iterable[tuple[WarmPool, int, int]]) -> Iterator[Metric]:
        wanted: Counter[tuple[str, ...]] = Counter()
        ready: Counter[tuple[str, ...]] = Counter()
        for pool, size, count in pools:
            place = (pool.location, *self._names.label((pool.account, pool.application)))
            wanted[place] += size
            ready[place] += count
        yield gauge("standbys_wanted", "Desired standbys of the warm pools.", _APPLICATION, wanted)
        yield gauge("standbys_ready", "Standbys that can be claimed now.", _APPLICATION, ready)


def _of_webhooks(deliverer: Deliverer) -> Iterator[Metric]:
    states = {(state,): number for state, number in deliverer.states().items()}
    yield gauge("webhooks", "Webhooks by state.", ("state",), states)
    yield gauge(
        "webhook_failed_events",
        "Events that wait for another attempt at an endpoint.",
        (),
        {(): deliverer.failed_events()},
    )
    yield gauge(
        "webhook_lag_seconds",
        "Age of the oldest event that an enabled webhook has not delivered.",
        (),
        {(): deliverer.lag()},
    )


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
        "Unfinished pulls of images to hosts: waiting, in progress, or to be retried.",
        (*PLACE, "state"),
        count.pulls,
    )
    yield gauge(
        "agent_certificate_expiry_timestamp_seconds",
        "When the first of the agents' certificates expires, in Unix time.",
        PLACE,
        count.expiry,
    )
