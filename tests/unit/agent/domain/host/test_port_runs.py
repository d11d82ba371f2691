"""Neighbouring ports, and those that a program binds under their number on the host."""

import contextlib
import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.errors import AgentError, NoFreePortError, PortTakenError
from agent.domain.host.port_runs import best_run
from agent.domain.host.ports import RUN_TRIES, PortPool
from agent.domain.sessions.session import Port
from tests.support.agent.samples import a_spec
from tiltyard.contract import PortRequest, Protocol

UDP = PortRequest(7777, Protocol.UDP)
TCP = PortRequest(7778, Protocol.TCP)
FIRST = 20000
LAST = 20007
RANGE = range(FIRST, LAST + 1)


def udp(count: int) -> list[PortRequest]:
    return [PortRequest(7777 + number, Protocol.UDP) for number in range(count)]


def hosts(ports: tuple[Port, ...]) -> list[int]:
    return [port.host for port in ports]


def test_contiguous_ports_are_neighbours_in_the_order_of_the_request() -> None:
    pool = PortPool(FIRST, LAST)
    pool.reserve("a", [replace(UDP, pinned=20001)])
    ports = pool.reserve("b", udp(4), contiguous=True)
    assert [port.container for port in ports] == [7777, 7778, 7779, 7780]
    assert hosts(ports) == [20002, 20003, 20004, 20005]


def test_contiguous_ports_of_both_protocols_are_neighbours() -> None:
    pool = PortPool(FIRST, LAST)
    pool.reserve("a", [replace(TCP, pinned=20001)])
    ports = pool.reserve("b", [UDP, TCP, UDP], contiguous=True)
    assert hosts(ports) == [20001, 20002, 20003]


def test_without_enough_neighbours_no_port_is_taken() -> None:
    pool = PortPool(FIRST, LAST)
    for port in (20002, 20005):
        pool.reserve(str(port), [replace(UDP, pinned=port)])
    with pytest.raises(NoFreePortError) as error:
        pool.reserve("a", udp(3), contiguous=True)
    assert str(error.value) == "cannot reserve 3 neighbouring ports: none is free in the range"
    assert pool.free(Protocol.UDP) == 6
    assert hosts(pool.reserve("a", udp(2), contiguous=True)) == [20000, 20001]


def test_more_neighbours_than_the_range_has_are_refused() -> None:
    with pytest.raises(NoFreePortError):
        PortPool(FIRST, FIRST + 1).reserve("a", udp(3), contiguous=True)


def test_the_neighbours_beside_a_pinned_port_are_in_one_run() -> None:
    pool = PortPool(FIRST, LAST)
    [first, pinned, second] = udp(3)
    ports = pool.reserve("a", [first, replace(pinned, pinned=20001), second], contiguous=True)
    assert hosts(ports) == [20002, 20001, 20003]


def test_inner_tls_port_is_beside_the_neighbours() -> None:
    tls = [PortRequest(number, Protocol.TCP, tls=True) for number in (1, 2)]
    ports = PortPool(FIRST, LAST).reserve("a", tls, in_host=True, contiguous=True)
    assert hosts(ports) == [20000, 20001]
    assert [port.inner for port in ports] == [20002, 20003]


def test_neighbours_that_another_process_uses_are_skipped_and_move_to_the_end() -> None:
    others = {(Protocol.UDP, 20001), (Protocol.UDP, 20004)}
    pool = PortPool(FIRST, LAST, lambda *port: port not in others)
    assert hosts(pool.reserve("a", udp(3), contiguous=True)) == [20005, 20006, 20007]
    others.clear()
    assert hosts(pool.reserve("b", udp(2), contiguous=True)) == [20002, 20003]
    assert pool.reserve("c", [UDP])[0].host == 20000
    assert pool.reserve("d", [UDP])[0].host == 20001


def test_skips_a_limited_number_of_runs_per_request() -> None:
    in_use = range(FIRST, FIRST + 2 * RUN_TRIES)
    pool = PortPool(FIRST, FIRST + 99, lambda _, port: port not in in_use)
    with pytest.raises(NoFreePortError):
        pool.reserve("a", udp(2), contiguous=True)
    assert hosts(pool.reserve("a", udp(2), contiguous=True)) == [in_use.stop, in_use.stop + 1]


_REQUESTS = st.lists(
    st.builds(PortRequest, container=st.integers(1, 9), protocol=st.sampled_from(Protocol)),
    min_size=1,
    max_size=4,
)


@given(st.lists(st.tuples(st.integers(0, 4), _REQUESTS), max_size=12))
def test_neighbours_released_longest_ago_are_next(
    moves: list[tuple[int, list[PortRequest]]],
) -> None:
    """Compare with a search of all runs."""
    pool = PortPool(FIRST, LAST)
    released = {(protocol, port): 0 for protocol in Protocol for port in RANGE}
    free = set(released)
    held: dict[int, list[tuple[Protocol, int]]] = {}
    releases = 0
    for number, requests in moves:
        if number in held:
            pool.release(str(number))
            for port in held.pop(number):
                releases += 1
                released[port] = releases
                free.add(port)
            continue
        runs = [
            [(request.protocol, first + place) for place, request in enumerate(requests)]
            for first in RANGE
        ]
        possible = [run for run in runs if free.issuperset(run)]
        if not possible:
            with pytest.raises(NoFreePortError):
                pool.reserve(str(number), requests, contiguous=True)
            continue
        best = min(possible, key=lambda run: max(released[port] for port in run))
        ports = pool.reserve(str(number), requests, contiguous=True)
        assert [(port.protocol, port.host) for port in ports] == best
        held[number] = best
        free.difference_update(best)


def test_program_binds_the_host_port_of_a_same_port() -> None:
    [same, other] = PortPool(FIRST, LAST).reserve("a", [replace(UDP, same=True), TCP])
    assert same.container == 7777
    assert same.bound(in_host=False) == same.host
    assert same.bound(in_host=True) == same.host
    assert other.bound(in_host=False) == 7778


def test_same_port_is_not_what_the_program_binds_for_another_port() -> None:
    taken = PortRequest(20000, Protocol.UDP)
    same = PortRequest(7777, Protocol.UDP, same=True)
    pool = PortPool(FIRST, LAST)
    assert hosts(pool.reserve("a", [same, taken])) == [20001, 20000]
    assert hosts(pool.reserve("b", [replace(same, protocol=Protocol.TCP)])) == [20000]
    assert hosts(pool.reserve("c", [taken, same], in_host=True)) == [20002, 20003]


def test_pinned_same_port_is_refused_if_the_program_binds_it_for_another_port() -> None:
    pool = PortPool(FIRST, LAST)
    same = PortRequest(7777, Protocol.UDP, pinned=20001, same=True)
    with pytest.raises(PortTakenError):
        pool.reserve("a", [same, PortRequest(20001, Protocol.UDP)])
    assert pool.free(Protocol.UDP) == len(RANGE)


_ANY_REQUESTS = st.lists(
    st.builds(
        PortRequest,
        container=st.integers(FIRST, LAST),
        protocol=st.sampled_from(Protocol),
        pinned=st.sampled_from([0, 0, 0, *RANGE]),
        same=st.booleans(),
    ),
    max_size=4,
    unique_by=lambda request: (request.protocol, request.container),
)


@given(st.lists(st.tuples(st.integers(0, 4), _ANY_REQUESTS, st.booleans())))
def test_programs_never_bind_one_port_twice(
    moves: list[tuple[int, list[PortRequest], bool]],
) -> None:
    pool = PortPool(FIRST, LAST)
    held: dict[int, tuple[Port, ...]] = {}
    for number, requests, contiguous in moves:
        if number in held:
            pool.release(str(number))
            del held[number]
            continue
        with contextlib.suppress(AgentError):
            held[number] = pool.reserve(str(number), requests, contiguous=contiguous)
            bound = [(port.protocol, port.bound(in_host=False)) for port in held[number]]
            assert len(bound) == len(set(bound))
        taken = [(port.protocol, port.host) for port in itertools.chain(*held.values())]
        assert len(taken) == len(set(taken))
        for protocol in Protocol:
            mine = sum(1 for kind, _ in taken if kind is protocol)
            assert pool.free(protocol) == len(RANGE) - mine


def test_first_holders_that_stand_between_neighbours_are_found() -> None:
    pool = PortPool(FIRST, LAST)
    for port in RANGE:
        pool.reserve(f"holder-{port}", [replace(UDP, pinned=port)])
    pool.release("holder-20003")
    wanted = a_spec(ports=tuple(udp(2)), contiguous=True)
    holders = [f"holder-{port}" for port in (20000, 20001, 20005, 20004, 20002)]
    assert pool.in_the_way(wanted, holders) == {"holder-20000", "holder-20001"}
    assert pool.in_the_way(wanted, holders[2:]) == {"holder-20004"}
    assert pool.in_the_way(wanted, holders[4:]) == {"holder-20002"}
    assert pool.in_the_way(wanted, holders[2:3]) == set()


def test_holder_of_a_pinned_port_is_found_beside_those_of_neighbours() -> None:
    pool = PortPool(FIRST, FIRST + 1)
    for port in (FIRST, FIRST + 1):
        pool.reserve(f"holder-{port}", [replace(UDP, pinned=port)])
    requests = (replace(UDP, pinned=FIRST), PortRequest(7779, Protocol.UDP))
    wanted = a_spec(ports=requests, contiguous=True)
    holders = [f"holder-{port}" for port in (FIRST, FIRST + 1)]
    assert pool.in_the_way(wanted, holders) == set(holders)


def test_run_of_least_rank_is_the_best_and_of_equals_the_first() -> None:
    ranks = {Protocol.UDP: {1: 5, 2: 1, 3: 2, 4: 2, 5: 0, 6: 2}, Protocol.TCP: {}}
    assert best_run(udp(2), ranks, range(1, 8)) == 2
    assert best_run(udp(3), ranks, range(1, 8)) == 2
    assert best_run(udp(3), ranks, range(1, 8), lambda _: {2}) == 3
    assert best_run(udp(6), ranks, range(1, 8)) == 1
    assert best_run(udp(7), ranks, range(1, 8)) is None
    assert best_run([TCP], ranks, range(1, 8)) is None
