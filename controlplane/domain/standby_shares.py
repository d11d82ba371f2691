"""How many standbys of a pool each host keeps. Pure.

A share changes only for a reason: the pool's size, a host that came, went or has the image by now,
or one that lastingly cannot make what its share lacks while another could. Else each host keeps
what it has, since every change stops a server that a caller could have had.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controlplane.domain.placement import HostView, Strategy, Wanted, fullness, has_room
from tiltyard.contract import Protocol


@dataclass(frozen=True, slots=True)
class Offer:
    """What a host can do for a pool.

    `present` standbys of it are there, `room` is how many more fit. `fullness` is as of placement,
    `step` by how much one more raises it. `is_short`: for a while now it could not make what its
    share lacks.
    """

    agent: str
    present: int
    room: int
    fullness: float = 0.0
    step: float = 0.0
    latency_ms: float = float("inf")
    is_short: bool = False

    @property
    def most(self) -> int:
        """How many it could keep."""
        return self.present + self.room


def share(
    size: int, held: Mapping[str, int], offers: Iterable[Offer], strategy: Strategy
) -> dict[str, int]:
    """Spread a pool over the hosts that offer, by agent and without zeros.

    `held` are the shares so far. What no host has room for is given to none; a share that is held
    stays, room or not, since the host makes it up as soon as it can.
    """
    by_name = {offer.agent: offer for offer in offers}
    shares = {name: held.get(name, 0) for name in by_name}
    _take_away(shares, sum(shares.values()) - size, by_name, strategy)
    if _give(shares, size - sum(shares.values()), by_name, strategy) == 0:
        _move_what_is_lacking(shares, by_name, strategy)
    return {name: count for name, count in shares.items() if count}


def kept_of_older(size: int, held: Mapping[str, int], ready: int) -> dict[str, int]:
    """Let hosts that do not have the newest tag yet keep theirs until others have it `ready`."""
    left, kept = max(0, size - ready), {}
    for name in sorted(held):
        kept[name] = min(held[name], left)
        left -= kept[name]
    return {name: count for name, count in kept.items() if count}


def room_for(view: HostView, wanted: Wanted, max_silence: float) -> int:
    """Count how many more of these a host could take: none where placement would put none.

    Ports are not pinned.
    """
    if not has_room(view, wanted, max_silence):
        return 0
    host, held, each = view.host, view.held, wanted.reservation
    free = host.capacity - host.reserved - held
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


def offer_of(
    view: HostView,
    wanted: Wanted,
    max_silence: float,
    *,
    present: int,
    is_short: bool = False,
) -> Offer:
    """Say what a host can do for a pool whose standbys want this."""
    capacity, each = view.host.capacity, wanted.reservation
    return Offer(
        agent=view.agent,
        present=present,
        room=room_for(view, wanted, max_silence),
        fullness=fullness(view),
        step=max(
            each.nano_cpus / max(capacity.nano_cpus, 1),
            each.memory_bytes / max(capacity.memory_bytes, 1),
        ),
        latency_ms=float("inf") if view.latency_ms is None else round(view.latency_ms),
        is_short=is_short,
    )


def _key(offer: Offer, count: int, strategy: Strategy) -> tuple[float, float, str]:
    """Return the sort key of hosts: the one that gets the next standby comes first."""
    full = offer.fullness + offer.step * max(0, count - offer.present)
    return (-full if strategy is Strategy.PACKED else full, offer.latency_ms, offer.agent)


def _give(
    shares: dict[str, int], count: int, offers: Mapping[str, Offer], strategy: Strategy
) -> int:
    """Add `count` standbys where there is capacity, one by one; return how many did not fit."""
    queue = [
        (_key(offer, shares[name], strategy), name)
        for name, offer in offers.items()
        if shares[name] < offer.most
    ]
    heapq.heapify(queue)
    while count > 0 and queue:
        _, name = queue[0]
        shares[name] += 1
        count -= 1
        if shares[name] < offers[name].most:
            heapq.heapreplace(queue, (_key(offers[name], shares[name], strategy), name))
        else:
            heapq.heappop(queue)
    return max(0, count)


def _take_away(
    shares: dict[str, int], count: int, offers: Mapping[str, Offer], strategy: Strategy
) -> None:
    """Remove `count`: first those that do not exist yet, then from the host chosen last."""
    order = sorted(offers, key=lambda name: _key(offers[name], shares[name], strategy))
    for present_too in (False, True):
        for name in reversed(order):
            kept = 0 if present_too else offers[name].present
            taken = min(max(0, count), max(0, shares[name] - kept))
            shares[name] -= taken
            count -= taken


def _move_what_is_lacking(
    shares: dict[str, int], offers: Mapping[str, Offer], strategy: Strategy
) -> None:
    """Have other hosts make what one lastingly cannot, as far as they have room."""
    lacking = {
        name: shares[name] - offer.most
        for name, offer in offers.items()
        if offer.is_short and shares[name] > offer.most
    }
    others = {name: offer for name, offer in offers.items() if name not in lacking}
    moved = sum(lacking.values()) - _give(shares, sum(lacking.values()), others, strategy)
    for name in sorted(lacking):
        back = min(moved, lacking[name])
        shares[name] -= back
        moved -= back
