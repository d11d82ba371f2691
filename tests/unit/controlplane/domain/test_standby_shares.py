"""How the standbys of a pool are spread over hosts."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.contract import HostReport
from controlplane.domain.placement import HostView, Strategy, Wanted
from controlplane.domain.standby_shares import Offer, kept_of_older, offer_of, room_for, share
from tiltyard.contract import PortRequest, Protocol, Resources

NAMES = st.sampled_from("abcdef")
COUNTS = st.integers(0, 12)
OFFERS = st.lists(
    st.builds(
        Offer,
        agent=NAMES,
        present=COUNTS,
        room=COUNTS,
        fullness=st.floats(0, 1),
        step=st.floats(0, 0.5),
        latency_ms=st.sampled_from([1.0, 2.0, float("inf")]),
        is_short=st.booleans(),
    ),
    unique_by=lambda offer: offer.agent,
)
SHARES = st.dictionaries(NAMES, st.integers(1, 12))
SIZES = st.integers(0, 40)
STRATEGIES = st.sampled_from(list(Strategy))
IMAGE = "r/g@sha256:1"


def total(shares: Mapping[str, int]) -> int:
    return sum(shares.values())


@given(SIZES, SHARES, OFFERS, STRATEGIES)
def test_a_pool_is_as_large_as_its_size_and_its_room_allow(
    size: int, held: dict[str, int], offers: list[Offer], strategy: Strategy
) -> None:
    shares = share(size, held, offers, strategy)
    assert set(shares) <= {offer.agent for offer in offers}
    assert all(count > 0 for count in shares.values())
    assert total(shares) <= size
    stays = {o.agent: min(held.get(o.agent, 0), size) for o in offers}
    room = sum(max(o.most, stays[o.agent]) for o in offers)
    assert total(shares) == min(size, room) or total(stays) > size
    if total(stays) > size:
        assert total(shares) == size


@given(SIZES, SHARES, OFFERS, STRATEGIES)
def test_nothing_changes_without_a_reason(
    size: int, held: dict[str, int], offers: list[Offer], strategy: Strategy
) -> None:
    shares = share(size, held, offers, strategy)
    assert share(size, shares, offers, strategy) == shares
    before = {o.agent: held.get(o.agent, 0) for o in offers}
    lasting = {o.agent for o in offers if o.is_short and before[o.agent] > o.most}
    if total(before) <= size:  # nobody gives up what it can keep
        assert all(shares.get(a, 0) >= n for a, n in before.items() if a not in lasting)
    if total(before) >= size and not lasting:  # nobody gets more
        assert all(shares.get(a, 0) <= n for a, n in before.items())


@given(SIZES, SHARES, OFFERS, STRATEGIES)
def test_no_host_gets_more_than_it_has_room_for(
    size: int, held: dict[str, int], offers: list[Offer], strategy: Strategy
) -> None:
    shares = share(size, held, offers, strategy)
    for offer in offers:
        assert shares.get(offer.agent, 0) <= max(offer.most, held.get(offer.agent, 0))


@given(SIZES, SHARES, OFFERS, STRATEGIES)
def test_a_smaller_pool_gives_up_those_that_are_not_there_first(
    size: int, held: dict[str, int], offers: list[Offer], strategy: Strategy
) -> None:
    before = {o.agent: held.get(o.agent, 0) for o in offers}
    shares = share(size, held, offers, strategy)
    there = sum(min(before[o.agent], o.present) for o in offers)
    if total(before) >= size >= there and not any(o.is_short for o in offers):
        assert all(shares.get(o.agent, 0) >= min(before[o.agent], o.present) for o in offers)


def test_packed_fills_the_fullest_and_spread_takes_turns() -> None:
    offers = [
        Offer("empty", 0, 5, fullness=0.0, step=0.1),
        Offer("half", 0, 3, fullness=0.5, step=0.1),
    ]
    assert share(4, {}, offers, Strategy.PACKED) == {"half": 3, "empty": 1}
    even = [replace(offer, fullness=0.2) for offer in offers]
    assert share(4, {}, even, Strategy.SPREAD) == {"half": 2, "empty": 2}


def test_what_a_host_lastingly_cannot_make_goes_where_there_is_room() -> None:
    full, other = Offer("full", present=1, room=0), Offer("other", 0, 2)
    assert share(4, {"full": 4}, [full, other], Strategy.PACKED) == {"full": 4}
    short = replace(full, is_short=True)
    assert share(4, {"full": 4}, [short, other], Strategy.PACKED) == {"full": 2, "other": 2}
    assert share(4, {"full": 4}, [short], Strategy.PACKED) == {"full": 4}


@given(SIZES, SHARES, st.integers(0, 40))
def test_older_standbys_go_as_newer_ones_become_ready(
    size: int, held: dict[str, int], ready: int
) -> None:
    kept = kept_of_older(size, held, ready)
    assert all(0 < count <= held[name] for name, count in kept.items())
    assert total(kept) == min(total(held), max(0, size - ready))


def a_host(**more: object) -> HostReport:
    fields = {
        "agent_id": "h",
        "version": "0",
        "public_address": "192.0.2.1",
        "latency_addresses": (),
        "capacity": Resources(10 * 10**9, 10 * 2**30, 2),
        "reserved": Resources(),
        "free_sessions": 50,
        "port_range_first": 20000,
        "port_range_last": 30000,
        "free_tcp_ports": 100,
        "free_udp_ports": 100,
        "images": frozenset({IMAGE}),
        "tls": False,
        "draining": False,
        "engine_available": True,
        "start_slots": 8,
    }
    return HostReport(**(fields | more))  # type: ignore[arg-type]


UDP, TCP = PortRequest(1, Protocol.UDP), PortRequest(2, Protocol.TCP)
EACH = Wanted(IMAGE, Resources(10**9, 2**30), (UDP, UDP, TCP))


@pytest.mark.parametrize(
    ("host", "room"),
    [
        ({}, 10),
        ({"reserved": Resources(7 * 10**9, 0)}, 3),
        ({"reserved": Resources(0, 6 * 2**30)}, 4),
        ({"free_sessions": 2}, 2),
        ({"free_udp_ports": 9}, 4),
        ({"free_tcp_ports": 6}, 6),
        ({"images": frozenset()}, 0),
        ({"draining": True}, 0),
        ({"engine_available": False}, 0),
        ({"disk_full": True}, 0),
    ],
)
def test_room_is_counted_as_placement_does(host: dict[str, object], room: int) -> None:
    view = HostView("h", a_host(**host), silent_seconds=0.0)
    assert room_for(view, EACH, 5.0) == room
    assert room_for(replace(view, silent_seconds=6.0), EACH, 5.0) == 0
    offer = offer_of(view, EACH, 5.0, present=3)
    assert (offer.room, offer.most) == (room, room + 3)


def test_what_is_held_already_is_no_room() -> None:
    view = HostView("h", a_host(), silent_seconds=0.0, held=Resources(4 * 10**9), in_flight=45)
    assert room_for(view, EACH, 5.0) == 5
    gpus = Wanted(IMAGE, Resources(gpus=1), ())
    assert room_for(view, gpus, 5.0) == 2
