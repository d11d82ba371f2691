"""What the hosts of each region and node pool have room for. Pure."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client import Metric

from controlplane.domain.contract import HostReport
from controlplane.domain.placement import HostView, is_usable
from controlplane.metrics.making import gauge
from tiltyard.contract import Protocol, Resources

Place = tuple[str, str]
"""A region and a node pool."""
PLACE = ("region", "node_pool")

_NANO = 1e9
_USES = {
    "capacity": "of the hosts in reach",
    "reserved": "that sessions have reserved on the hosts in reach",
    "free": "free on the hosts that take sessions now, without what starts under way hold",
}


@dataclass(slots=True)
class Room:
    """The sums over hosts, by place."""

    _of: dict[str, dict[Place, Resources]] = field(
        default_factory=lambda: {use: {} for use in _USES}
    )
    _free_ports: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    _free_sessions: Counter[Place] = field(default_factory=Counter)

    def add(
        self, place: Place, host: HostReport | None, view: HostView | None, max_silence: float
    ) -> None:
        """Add one host; None where it is out of reach, or nothing of it can be used."""
        is_free = view is not None and is_usable(view, max_silence)
        capacity = host.capacity if host else Resources()
        reserved = host.reserved if host else Resources()
        free = _left(capacity - reserved - view.held) if host and view and is_free else Resources()
        for use, resources in {"capacity": capacity, "reserved": reserved, "free": free}.items():
            self._of[use][place] = self._of[use].get(place, Resources()) + resources
        usable = host if host and is_free else None
        tcp, udp = (*place, Protocol.TCP.value), (*place, Protocol.UDP.value)
        self._free_ports[tcp] += usable.free_tcp_ports if usable else 0
        self._free_ports[udp] += usable.free_udp_ports if usable else 0
        self._free_sessions[place] += usable.free_sessions if usable else 0

    def families(self) -> Iterator[Metric]:
        """Show the sums."""
        for use, of_what in _USES.items():
            sums = self._of[use].items()
            cores = {place: each.nano_cpus / _NANO for place, each in sums}
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
            "Sessions that the hosts which take some now may still have, by their own bound.",
            PLACE,
            self._free_sessions,
        )


def _left(free: Resources) -> Resources:
    """Count nothing twice: a host whose allocatable room shrank leaves others theirs."""
    return Resources(max(0, free.nano_cpus), max(0, free.memory_bytes), max(0, free.gpus))
