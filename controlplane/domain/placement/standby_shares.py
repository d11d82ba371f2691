"""How many standbys of a pool each host keeps. Pure.

A share changes only with the pool's size, if a host joins, leaves or gets the image, or if it
stays unable to create its share: every change stops a server that could have been claimed.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from controlplane.domain.placement.placement import HostView, Strategy, Wanted, has_room
from tiltyard.contract import Protocol


@dataclass(frozen=True, slots=True)
class PoolHost:
    """A host that may keep standbys of a pool.

    `held`: its current share; `present`: standbys that exist; `room`: how many more fit; `rank`:
    that of placement. `cannot_fill`: it has been unable to create its share for a while.
    """

    agent: str
    held: int
    present: int
    room: int
    rank: tuple[float, ...] = ()
    cannot_fill: bool = False

    @property
    def most(self) -> int:
        """Maximum share of the host."""
        return self.present + self.room


def share(size: int, hosts: Iterable[PoolHost], strategy: Strategy) -> dict[str, int]:
    """Return each agent's share, without zeros; standbys that fit nowhere are left out."""
    order = sorted(hosts, key=lambda host: (host.rank, host.agent))
    shares = {
        host.agent: min(host.held, host.most if host.cannot_fill else size) for host in order
    }
    surplus = sum(shares.values()) - size
    for present_too in (False, True):
        for host in reversed(order):
            kept = 0 if present_too else host.present
            taken = min(max(0, surplus), max(0, shares[host.agent] - kept))
            shares[host.agent] -= taken
            surplus -= taken
    lacking = size - sum(shares.values())
    while lacking > 0:
        able = [host for host in order if shares[host.agent] < host.most]
        if not able:
            break
        least = min(shares[host.agent] for host in able)
        for host in able:
            given = min(lacking, host.most - shares[host.agent])
            if strategy is Strategy.SPREAD:
                given = min(given, int(shares[host.agent] == least))
            shares[host.agent] += given
            lacking -= given
    return {name: count for name, count in shares.items() if count}


def room_for(view: HostView, wanted: Wanted, max_age: float) -> int:
    """Return how many more of these a host could take, without pinned ports."""
    if not has_room(view, wanted, max_age):
        return 0
    host = view.host
    each = wanted.reservation
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
