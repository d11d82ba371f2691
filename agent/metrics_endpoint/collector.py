"""What is state of a host, read from its parts when Prometheus asks: nothing is kept twice."""

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agent.changes.feed import Feed
from agent.domain.host_report import HostReport
from agent.domain.session import Session
from agent.images.images import Images
from agent.sessions.manager import SessionManager
from agent.sessions.reservations import Reservations
from tiltyard.contract import Protocol, State
from tiltyard.runtime.bounded_names import BoundedNames

_PREFIX = "tiltyard_agent_"
_CORE = 10**9


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HostState(Collector):
    """The gauges of a host. One pass over its sessions is all that takes time.

    `firewall_intact` is None if the agent does not check the rules.
    """

    reservations: Reservations
    feed: Feed
    sessions: SessionManager
    images: Images
    flush_failures: Callable[[], int]
    firewall_intact: Callable[[], bool] | None
    report: Callable[[], HostReport]
    _names: BoundedNames = field(default_factory=BoundedNames, init=False)

    def collect(self) -> Iterator[Metric]:
        """Read everything, in one step of the event loop."""
        report = self.report()
        yield from _build(report)
        yield from self._sessions(report)
        yield from self._capacity(report)
        yield from self._health(report)
        yield from self._work()

    def _sessions(self, report: HostReport) -> Iterator[Metric]:
        found: Counter[tuple[str, State]] = Counter()
        starting: Counter[str] = Counter()
        ready: Counter[str] = Counter()
        wanted: Counter[str] = Counter()
        for session in self.sessions.each():
            application = session.spec.identity.application
            if not session.is_standby:
                found[application, session.state] += 1
            elif _is_ready(session):
                ready[application] += 1
            elif not session.state.ended:
                starting[application] += 1
        for pool in report.warm_pools:
            if pool.spec is not None:
                wanted[pool.spec.identity.application] += pool.size
        present = {name for name, _ in found} | {*wanted, *ready, *starting}
        self._names.keep({(name,) for name in present})
        yield self._by_state(found)
        text = "Desired standbys of the host's warm pools."
        yield self._by_application("standbys_wanted", text, wanted, wanted | ready | starting)
        text = "Standbys that can be claimed."
        yield self._by_application("standbys_ready", text, ready, wanted | ready | starting)
        text = "Standbys that are not ready yet, or on their way out."
        yield self._by_application("standbys_unready", text, starting, wanted | ready | starting)

    def _label(self, application: str) -> str:
        [label] = self._names.label((application,))
        return label

    def _by_state(self, found: Counter[tuple[str, State]]) -> Metric:
        totals: dict[str, Counter[State]] = {}
        for (application, state), count in found.items():
            totals.setdefault(self._label(application), Counter())[state] += count
        labels = ("application", "state")
        family = _gauge("sessions", "Sessions, ended ones that are kept included.", labels)
        for application in sorted(totals):
            for state in State:
                family.add_metric((application, state.value), totals[application][state])
        return family

    def _by_application(
        self, name: str, text: str, counts: Counter[str], names: Iterable[str]
    ) -> Metric:
        totals: Counter[str] = Counter()
        for application in names:
            totals[self._label(application)] += counts[application]
        family = _gauge(name, text, ("application",))
        for application in sorted(totals):
            family.add_metric((application,), totals[application])
        return family

    def _capacity(self, report: HostReport) -> Iterator[Metric]:
        total, reserved = report.capacity, report.reserved
        capacity = self.reservations.capacity
        yield _one("capacity_cores", "Allocatable cores.", total.nano_cpus / _CORE)
        yield _one("reserved_cores", "Cores that are reserved.", reserved.nano_cpus / _CORE)
        yield _one("capacity_memory_bytes", "Allocatable memory.", total.memory_bytes)
        yield _one("reserved_memory_bytes", "Memory that is reserved.", reserved.memory_bytes)
        yield _one("capacity_gpus", "Allocatable GPUs.", total.gpus)
        yield _one("reserved_gpus", "GPUs that are reserved.", reserved.gpus)
        yield _one("capacity_sessions", "Sessions that are allowed.", capacity.max_sessions)
        yield _one("reserved_sessions", "Sessions that hold a reservation.", capacity.sessions)
        first, last = report.port_range
        ports = _gauge("capacity_ports", "Host ports of the range.", ("protocol",))
        free = _gauge("free_ports", "Host ports that no session holds.", ("protocol",))
        for protocol in Protocol:
            ports.add_metric((protocol.value,), last - first + 1)
            free.add_metric((protocol.value,), self.reservations.ports.free(protocol))
        yield from (ports, free)

    def _health(self, report: HostReport) -> Iterator[Metric]:
        yield _one("reconciled", "1 once records were reconciled.", self.sessions.reconciled)
        yield _one("engine_available", "1 while the engine answers.", report.engine_available)
        yield _one("draining", "1 while no new sessions are taken.", report.drain.draining)
        yield _one("warnings", "Warnings of the host's report.", len(report.warnings))
        if self.firewall_intact is not None:
            text = "1 while the firewall keeps sessions from the host."
            yield _one("firewall_intact", text, self.firewall_intact())
        if (ends := self.reservations.tls_ports.expire_time) is not None:
            text = "When the certificate of TLS ports ends, in Unix time."
            yield _one("tls_certificate_expiry_timestamp_seconds", text, ends)
        free = _gauge("disk_free_bytes", "Free bytes at the last look.", ("path",))
        reserve = _gauge(
            "disk_reserve_bytes",
            "Reserved bytes: with fewer free ones no session is started.",
            ("path",),
        )
        free_inodes = _gauge("disk_free_inodes", "Free inodes at the last look.", ("path",))
        reserve_inodes = _gauge(
            "disk_reserve_inodes",
            "Reserved inodes: with fewer free ones no session is started.",
            ("path",),
        )
        for disk in self.reservations.disks.seen:
            path = (str(disk.path),)
            free.add_metric(path, disk.free_bytes)
            reserve.add_metric(path, disk.reserve_bytes)
            if disk.free_inodes is not None:
                free_inodes.add_metric(path, disk.free_inodes)
                reserve_inodes.add_metric(path, disk.reserve_inodes)
        yield from (free, reserve, free_inodes, reserve_inodes)

    def _work(self) -> Iterator[Metric]:
        pulls = self.images.pulls.values()
        waiting = sum(progress.waiting for progress in pulls)
        family = _gauge("image_pulls_in_progress", "Image pulls in progress.", ("state",))
        family.add_metric(("waiting",), waiting)
        family.add_metric(("pulling",), len(pulls) - waiting)
        yield family
        slots, tls_ports = self.reservations.start_slots, self.reservations.tls_ports
        yield _one("start_slots", "Starts that the host makes at once.", slots.slots)
        yield _one("starts_in_progress", "Starts in progress.", slots.used)
        yield _one("starts_waiting", "Starts that wait for a slot.", len(slots.waiting))
        yield _one("watch_streams", "Control planes that watch.", self.feed.watchers)
        yield _one("tls_connections", "Open connections of TLS ports.", tls_ports.connections)
        yield CounterMetricFamily(
            f"{_PREFIX}conntrack_flush_failures",
            "Times that old flows of UDP ports could not be forgotten.",
            value=self.flush_failures(),
        )


def _build(report: HostReport) -> Iterator[Metric]:
    build = InfoMetricFamily(f"{_PREFIX}build", "The agent.")
    build.add_metric((), {"version": report.version, "python": platform.python_version()})
    engine = InfoMetricFamily(f"{_PREFIX}engine", "The container engine, empty while unknown.")
    versions = {
        "version": report.engine_version,
        "runc": report.runc_version,
        "kernel": report.kernel_version,
    }
    engine.add_metric((), versions)
    yield from (build, engine)


def _is_ready(session: Session) -> bool:
    """True for a standby that a claim can have."""
    runs = session.state is State.RUNNING and session.ready_time is not None
    return runs and session.is_given_back


def _gauge(name: str, text: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, text, labels=labels)


def _one(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, text, value=value)
