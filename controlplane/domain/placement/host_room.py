"""What a host has left for starts, as the index of placement has it of each host. Pure."""

import struct
from typing import NamedTuple

from controlplane.domain.hosts.contract import HostReport
from controlplane.domain.placement.placement import fullness
from tiltyard.contract import Resources


class HostRoom(NamedTuple):
    """Resources that a host has left for starts, as numbers from 0.

    `is_healthy`: it takes sessions at all. `is_open`: it also has a session and disk space left,
    and starts in flight hold no more than it has. `has_engine`: its engine answers. `first_port`
    and `last_port` are its port range, `fill` orders hosts as `fullness` does.
    """

    is_known: bool = False
    is_healthy: bool = False
    is_open: bool = False
    has_tls: bool = False
    has_engine: bool = False
    nano_cpus: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    tcp_ports: int = 0
    udp_ports: int = 0
    first_port: int = 0
    last_port: int = 0
    fill: int = 0

    @classmethod
    def of(cls, host: HostReport, held: Resources, in_flight: int) -> "HostRoom":
        """Return the room of a host besides what `in_flight` starts hold."""
        free = host.capacity - host.reserved - held
        least = min(free.nano_cpus, free.memory_bytes, free.gpus)
        is_healthy = host.engine_available and not host.draining
        has_session = in_flight < host.free_sessions
        return cls(
            is_known=True,
            is_healthy=is_healthy,
            is_open=is_healthy and has_session and not host.disk_full and least >= 0,
            has_tls=host.tls,
            has_engine=host.engine_available,
            nano_cpus=max(0, free.nano_cpus),
            memory_bytes=max(0, free.memory_bytes),
            gpus=max(0, free.gpus),
            tcp_ports=host.free_tcp_ports,
            udp_ports=host.free_udp_ports,
            first_port=host.port_range_first,
            last_port=host.port_range_last,
            fill=in_order(fullness(host, held)),
        )


class Slots(NamedTuple):
    """Whether a host has a start slot for an account that holds none there.

    For the accounts in `others` the opposite is true.
    """

    is_free: bool = False
    others: frozenset[str] = frozenset()


def in_order(value: float) -> int:
    """Return a number from 0 that orders numbers from 0, also an infinite one, as they are."""
    return int.from_bytes(struct.pack(">d", value), "big")
