"""Which hosts may take a session, best first. Pure: chance is injected, time is an argument.

The caller passes the hosts of one region and node pool only, so the cost does not grow with the
rest of the fleet. What is known of a host is a hint: the agent alone admits.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from controlplane.fleet.contract import Host, PortRequest, Protocol, Resources

_NOTHING = Resources()


class Strategy(StrEnum):
    """How a node pool fills its hosts."""

    PACKED = "packed"
    SPREAD = "spread"


@dataclass(frozen=True, slots=True)
class HostView:
    """A host as placement sees it at one moment.

    `in_flight` counts the starts that the host's own numbers do not show yet and `held` is what
    they hold; `starting` counts those of them that the agent has not answered. `used_ports` are
    the host ports known to be taken. `silent_seconds` is the time since the agent was last heard.
    """

    agent: str
    host: Host
    silent_seconds: float
    held: Resources = _NOTHING
    starting: int = 0
    in_flight: int = 0
    used_ports: Collection[tuple[Protocol, int]] = frozenset()
    latency_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a session asks of its host."""

    image: str
    reservation: Resources
    ports: tuple[PortRequest, ...]


def rank_hosts(
    views: Iterable[HostView],
    wanted: Wanted,
    *,
    strategy: Strategy,
    max_silence: float,
    random: Random,
) -> list[HostView]:
    """Order the hosts that may take the session now.

    Packed is fullest first, so that empty hosts can be given back; spread is the reverse. Then the
    lower latency, then chance.
    """
    fit = [v for v in views if has_room(v, wanted, max_silence) and has_start_slot(v)]
    sign = -1 if strategy is Strategy.PACKED else 1
    return sorted(fit, key=lambda v: (sign * _fullness(v), _latency(v), random.random()))


def has_start_slot(view: HostView) -> bool:
    """Tell whether the host can begin one more start now."""
    return view.starting < view.host.start_slots


def is_usable(view: HostView, max_silence: float) -> bool:
    """Tell whether the host takes sessions at all."""
    return (
        view.silent_seconds <= max_silence
        and view.host.engine_available
        and not view.host.draining
    )


def has_room(view: HostView, wanted: Wanted, max_silence: float) -> bool:
    """Tell whether the host could take the session, if it had a start slot free."""
    host = view.host
    free = host.capacity - host.reserved - view.held
    return (
        is_usable(view, max_silence)
        and wanted.image in host.images
        and host.free_sessions - view.in_flight > 0
        and wanted.reservation.fits_in(free)
        and _ports_fit(view, wanted.ports)
    )


def _ports_fit(view: HostView, ports: tuple[PortRequest, ...]) -> bool:
    host = view.host
    if any(port.tls for port in ports) and not host.tls:
        return False
    wanted_tcp = sum(port.protocol is Protocol.TCP for port in ports)
    if wanted_tcp > host.free_tcp_ports or len(ports) - wanted_tcp > host.free_udp_ports:
        return False
    pins = [port for port in ports if port.pinned]
    return all(
        host.port_range_first <= pin.pinned <= host.port_range_last
        and (pin.protocol, pin.pinned) not in view.used_ports
        for pin in pins
    )


def _fullness(view: HostView) -> float:
    capacity, used = view.host.capacity, view.host.reserved + view.held
    return max(
        used.nano_cpus / max(capacity.nano_cpus, 1),
        used.memory_bytes / max(capacity.memory_bytes, 1),
    )


def _latency(view: HostView) -> float:
    return float("inf") if view.latency_ms is None else view.latency_ms
