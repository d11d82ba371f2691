"""The gauges of a host, read from its components at each scrape."""

import platform
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agent.changes.feed import Feed
from agent.domain.sessions.session import Session
from agent.images.images import Images
from agent.network.led_ports import HostPort
from agent.sessions.manager import SessionManager
from agent.sessions.prepared_containers import PreparedContainers
from agent.sessions.reservations import Reservations
from agent.sessions.warm_pools import WarmPools
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.contract import NANO, Protocol, State
from tiltyard.runtime.bounded_names import BoundedNames

_Key = TypeVar("_Key", bound=tuple[str, ...])
_PREFIX = "tiltyard_agent_"
_SESSIONS = "Sessions, including ended ones that are kept."
_DISKS = {
    "free_bytes": "Free bytes at the last check.",
    "reserve_bytes": "Reserved bytes: with fewer free ones no session is started.",
    "free_inodes": "Free inodes at the last check.",
    "reserve_inodes": "Reserved inodes: with fewer free ones no session is started.",
}
_STANDBYS = {
    "wanted": "Desired standbys of the host's warm pools.",
    "ready": "Standbys that can be claimed.",
    "unready": "Standbys that are starting or being removed.",
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HostGauges(Collector):
    """The gauges of a host.

    `firewall_intact` and `led_elsewhere` are None if the agent does not check the rules.
    """

    reservations: Reservations
    feed: Feed
    sessions: SessionManager
    warm_pools: WarmPools
    prepared: PreparedContainers
    images: Images
    flush_failures: Callable[[], int]
    firewall_intact: Callable[[], bool] | None
    led_elsewhere: Callable[[], Collection[HostPort]] | None
    report: Callable[[], pb.Host]
    _names: BoundedNames = field(default_factory=BoundedNames, init=False)

    def collect(self) -> Iterator[Metric]:
        """Read all gauges without yielding to the event loop."""
        report = self.report()
        yield from _build(report)
        yield from self._sessions()
        yield from self._capacity(report)
        yield from self._health(report)
        yield from self._work()

    def _sessions(self) -> Iterator[Metric]:
        sessions: Counter[tuple[str, str]] = Counter()
        standbys: Counter[tuple[str, str]] = Counter()
        for session in self.sessions.each():
            application = session.spec.identity.application
            if session.is_standby:
                standbys[application, _kind(session)] += 1
            else:
                sessions[application, session.state.value] += 1
        for pool in self.warm_pools.pools:
            if pool.spec is not None:
                standbys[pool.spec.identity.application, "wanted"] += pool.size
        self._names.keep({(application,) for application, _ in (*sessions, *standbys)})
        values = {
            (application, state.value): counts[state.value]
            for application, counts in self._by_application(sessions)
            for state in State
        }
        yield _gauge("sessions", _SESSIONS, ("application", "state"), values)
        kept = self._by_application(standbys)
        for kind, text in _STANDBYS.items():
            numbers = {(application,): counts[kind] for application, counts in kept}
            yield _gauge(f"standbys_{kind}", text, ("application",), numbers)

    def _by_application(
        self, found: Counter[tuple[str, str]]
    ) -> Iterable[tuple[str, Counter[str]]]:
        totals: dict[str, Counter[str]] = {}
        for (application, kind), count in found.items():
            [label] = self._names.label((application,))
            totals.setdefault(label, Counter())[kind] += count
        return sorted(totals.items())

    def _capacity(self, report: pb.Host) -> Iterator[Metric]:
        total = report.capacity
        reserved = report.reserved
        capacity = self.reservations.capacity
        yield _one("capacity_cores", "Allocatable cores.", total.nano_cpus / NANO)
        yield _one("reserved_cores", "Cores that are reserved.", reserved.nano_cpus / NANO)
        yield _one("capacity_memory_bytes", "Allocatable memory.", total.memory_bytes)
        yield _one("reserved_memory_bytes", "Memory that is reserved.", reserved.memory_bytes)
        yield _one("capacity_gpus", "Allocatable GPUs.", total.gpus)
        yield _one("reserved_gpus", "GPUs that are reserved.", reserved.gpus)
        yield _one("capacity_sessions", "Sessions that are allowed.", capacity.max_sessions)
        yield _one("reserved_sessions", "Sessions that hold a reservation.", capacity.sessions)
        ports = report.port_range_last - report.port_range_first + 1
        free = {("tcp",): report.free_tcp_ports, ("udp",): report.free_udp_ports}
        every = dict.fromkeys(free, ports)
        yield _gauge("capacity_ports", "Host ports of the range.", ("protocol",), every)
        yield _gauge("free_ports", "Host ports that no session holds.", ("protocol",), free)

    def _health(self, report: pb.Host) -> Iterator[Metric]:
        yield _one("reconciled", "1 once records were reconciled.", self.sessions.reconciled)
        yield _one("engine_available", "1 while the engine answers.", report.engine_available)
        yield _one("draining", "1 while no new sessions are taken.", report.draining)
        yield _one("warnings", "Warnings of the host's report.", len(report.warnings))
        if self.firewall_intact is not None:
            text = "1 while the firewall rules are in place."
            yield _one("firewall_intact", text, self.firewall_intact())
        if self.led_elsewhere is not None:
            ports = Counter(protocol.value for protocol, _ in self.led_elsewhere())
            text = "Free host ports that firewall rules lead elsewhere."
            every = {(protocol.value,): ports[protocol.value] for protocol in Protocol}
            yield _gauge("ports_led_elsewhere", text, ("protocol",), every)
        if (ends := self.reservations.tls_ports.expire_time) is not None:
            text = "When the certificate of TLS ports expires, in Unix time."
            yield _one("tls_certificate_expiry_timestamp_seconds", text, ends)
        for name, text in _DISKS.items():
            values = {
                (str(disk.path),): getattr(disk, name)
                for disk in self.reservations.disks.seen
                if disk.free_inodes is not None or "inodes" not in name
            }
            yield _gauge(f"disk_{name}", text, ("path",), values)

    def _work(self) -> Iterator[Metric]:
        pulls = self.images.pulls.values()
        waiting = sum(progress.waiting for progress in pulls)
        states = {("waiting",): waiting, ("pulling",): len(pulls) - waiting}
        yield _gauge("image_pulls_in_progress", "Image pulls in progress.", ("state",), states)
        slots = self.reservations.start_slots
        tls_ports = self.reservations.tls_ports
        yield _one("start_slots", "Start slots of the host.", slots.slots)
        yield _one("starts_in_progress", "Starts in progress.", slots.used)
        yield _one("starts_waiting", "Starts that wait for a slot.", len(slots.waiting))
        kept = len(self.prepared.stock)
        yield _one("prepared_containers", "Prepared containers that wait for a start.", kept)
        yield _one("watch_streams", "Control planes that watch.", self.feed.watchers)
        yield _one("tls_connections", "Open connections of TLS ports.", tls_ports.connections)
        yield CounterMetricFamily(
            f"{_PREFIX}conntrack_flush_failures",
            "Failed flushes of connection tracking entries of UDP ports.",
            value=self.flush_failures(),
        )


def _build(report: pb.Host) -> Iterator[Metric]:
    build = {"version": report.version, "python": platform.python_version()}
    yield InfoMetricFamily(f"{_PREFIX}build", "The agent.", build)
    engine = {
        "version": report.engine_version,
        "runc": report.runc_version,
        "kernel": report.kernel_version,
    }
    text = "The container engine, empty while unknown."
    yield InfoMetricFamily(f"{_PREFIX}engine", text, engine)


def _kind(session: Session) -> str:
    """Return `ended`, `ready` (claimable) or `unready` for a standby."""
    if session.state.ended:
        return "ended"
    runs = session.state is State.RUNNING and session.ready_time is not None
    return "ready" if runs and session.is_given_back else "unready"


def _gauge(name: str, text: str, labels: tuple[str, ...], values: Mapping[_Key, float]) -> Metric:
    family = GaugeMetricFamily(_PREFIX + name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _one(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, text, value=value)
