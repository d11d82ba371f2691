from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.hosts.contract import HostReport
from controlplane.domain.placement.placement import HostView, Strategy, Wanted
from controlplane.domain.placement.standby_shares import PoolHost, room_for, share
from tests.unit.controlplane.domain.placement.test_placement import HOST, IMAGE
from tiltyard.contract import PortRequest, Protocol, Resources

COUNTS = st.integers(0, 12)
HOSTS = st.lists(
    st.builds(
        PoolHost,
        agent=st.sampled_from("abcdef"),
        held=COUNTS,
        present=COUNTS,
        room=COUNTS,
        rank=st.tuples(st.floats(0, 1)),
        cannot_fill=st.booleans(),
    ),
    unique_by=lambda host: host.agent,
)
SIZES = st.integers(0, 40)
STRATEGIES = st.sampled_from(list(Strategy))


@given(SIZES, HOSTS, STRATEGIES)
def test_shares_fill_size_or_room(size: int, hosts: list[PoolHost], strategy: Strategy) -> None:
    shares = share(size, hosts, strategy)
    assert all(count > 0 for count in shares.values())
    keeps = {h.agent: max(h.most, 0 if h.cannot_fill else h.held) for h in hosts}
    assert sum(shares.values()) == min(size, sum(keeps.values()))
    assert all(count <= keeps[agent] for agent, count in shares.items())


@given(SIZES, HOSTS, STRATEGIES)
def test_shares_change_for_a_reason(size: int, hosts: list[PoolHost], strategy: Strategy) -> None:
    shares = share(size, hosts, strategy)
    again = [replace(h, held=shares.get(h.agent, 0)) for h in hosts]
    assert share(size, again, strategy) == shares
    keeps = {h.agent: min(h.held, h.most) if h.cannot_fill else h.held for h in hosts}
    if sum(keeps.values()) <= size:  # no host gives up what it can keep
        assert all(shares.get(agent, 0) >= count for agent, count in keeps.items())
    else:
        assert all(shares.get(agent, 0) <= count for agent, count in keeps.items())


@given(SIZES, HOSTS, STRATEGIES)
def test_a_smaller_pool_first_drops_standbys_that_do_not_exist(
    size: int, hosts: list[PoolHost], strategy: Strategy
) -> None:
    shares = share(size, hosts, strategy)
    there = {h.agent: min(h.held, h.present) for h in hosts}
    if sum(there.values()) <= size:
        assert all(shares.get(agent, 0) >= count for agent, count in there.items())


def test_packed_fills_the_first_host_and_spread_balances() -> None:
    first = PoolHost("b", 0, 0, 3, rank=(0.1,))
    second = PoolHost("a", 0, 0, 5, rank=(0.2,))
    assert share(4, [second, first], Strategy.PACKED) == {"b": 3, "a": 1}
    assert share(4, [second, first], Strategy.SPREAD) == {"b": 2, "a": 2}
    assert share(5, [second, replace(first, held=3)], Strategy.SPREAD) == {"b": 3, "a": 2}


UDP = PortRequest(1, Protocol.UDP)
TCP = PortRequest(2, Protocol.TCP)
EACH = Wanted(IMAGE, Resources(10**9, 2**30), (UDP, UDP, TCP))
ROOMY = replace(
    HOST,
    capacity=Resources(10 * 10**9, 10 * 2**30, 2),
    free_sessions=50,
    free_tcp_ports=100,
    free_udp_ports=100,
)


@pytest.mark.parametrize(
    ("host", "room"),
    [
        (ROOMY, 10),
        (replace(ROOMY, reserved=Resources(7 * 10**9, 0)), 3),
        (replace(ROOMY, reserved=Resources(0, 6 * 2**30)), 4),
        (replace(ROOMY, free_sessions=2), 2),
        (replace(ROOMY, free_udp_ports=9), 4),
        (replace(ROOMY, free_tcp_ports=6), 6),
        (replace(ROOMY, images=frozenset()), 0),
    ],
)
def test_room_agrees_with_placement(host: HostReport, room: int) -> None:
    view = HostView("h", host, report_age=0.0)
    assert room_for(view, EACH, 5.0) == room
    assert room_for(replace(view, report_age=6.0), EACH, 5.0) == 0


def test_held_resources_reduce_the_room() -> None:
    view = HostView("h", ROOMY, report_age=0.0, held=Resources(4 * 10**9), in_flight=45)
    assert room_for(view, EACH, 5.0) == 5
    assert room_for(view, Wanted(IMAGE, Resources(gpus=1), ()), 5.0) == 2
