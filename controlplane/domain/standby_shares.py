"""How many standbys of a pool each host keeps. Pure.

A share changes only for a reason: the pool's size, a host that came, went or has the image by now,
or one that lastingly cannot make what its share lacks. Else each host keeps what it has, since
every change stops a server that a caller could have had.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from controlplane.domain.placement import HostView, Strategy, Wanted, has_room
from tiltyard.contract import Protocol


@dataclass(frozen=True, slots=True)
class PoolHost:
    """A host that may keep standbys of a pool.

    `held` is its share so far, of which `present` are there; `room` is how many more fit, and
    `rank` that of placement. `is_short`: for a while now it could not make what its share lacks.
    """

    agent: str
    held: int
    present: int
    room: int
    rank: tuple[float, ...] = ()
    is_short: bool = False

    @property
    def most(self) -> int:
        """How many it could keep."""
        return self.present + self.room


def share(size: int, hosts: Iterable[PoolHost], strategy: Strategy) -> dict[str, int]:
    """Spread a pool over hosts by the rank of placement, by agent and without zeros.

    What no host has room for is given to none.
    """
    order = sorted(hosts, key=lambda host: (host.rank, host.agent))
    shares = {host.agent: min(host.held, host.most if host.is_short else size) for host in order}
    surplus = sum(shares.values()) - size
    for present_too in (False, True):
        for host in reversed(order):
            kept = 0 if present_too else host.present
            taken = min(max(0, surplus), max(0, shares[host.agent] - kept))
            shares[host.agent] -= taken
            surplus -= taken
    lacking = size - sum(shares.values())
    while lacking > 0 and (able := [host for host in order if shares[host.agent] < host.most]):
        least = min(shares[host.agent] for host in able)
        for host in able:
            given = min(lacking, host.most - shares[host.agent])
            if strategy is Strategy.SPREAD:
                given = min(given, int(shares[host.agent] == least))
            shares[host.agent] += given
            lacking -= given
    return {name: count for name, count in shares.items() if count}


def room_for(view: HostView, wanted: Wanted, max_silence: float) -> int:
    """Count how many more of these a host could take: none where placement would put none.

    Ports are not pinned.
    """
    if not has_room(view, wanted, max_silence):
        return 0
    host, each = view.host, wanted.reservation
    free = host.capacity - host.reserved - view.held
    tcp = sum(port.protocol is Protocol.TCP for port in wanted.ports)
    pairs = (
        (free.nano_cpus, each.nano_cpus),
        (free.memory_bytes, each.memory_bytes),
        (free.gpus, each.gpus),
        (host.free_sessions - view.in_flight, 1),
        (host.free_tcp_ports, tcp),
        (host.free_udp_ports, len(wanted.ports) - tcp),
    )
    return max(0, min(have // need for have, need in pairs if need))
