import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.errors import AgentError, NoFreePortError, PortOutOfRangeError, PortTakenError
from agent.domain.host.ports import TRIES, PortPool
from agent.domain.sessions.session import Port
from tiltyard.contract import PortRequest, Protocol

UDP = PortRequest(7777, Protocol.UDP)
TCP = PortRequest(7778, Protocol.TCP)


def pinned(port: int, protocol: Protocol = Protocol.UDP) -> PortRequest:
    return PortRequest(7777, protocol, pinned=port)


def test_pinned_ports_are_taken_first() -> None:
    pool = PortPool(20000, 20001)
    ports = pool.reserve("a", [UDP, PortRequest(7779, Protocol.UDP, pinned=20000)])
    assert [port.host for port in ports] == [20001, 20000]


def test_ports_are_in_the_order_of_the_request() -> None:
    ports = PortPool(20000, 20009).reserve("a", [TCP, UDP])
    assert [port.container for port in ports] == [7778, 7777]


def test_request_that_cannot_be_met_takes_no_port() -> None:
    pool = PortPool(20000, 20001)
    pool.reserve("a", [UDP])
    with pytest.raises(NoFreePortError):
        pool.reserve("b", [TCP, UDP, PortRequest(7779, Protocol.UDP)])
    assert pool.free(Protocol.TCP) == 2
    assert pool.free(Protocol.UDP) == 1


def test_port_of_a_failed_request_is_the_next_one() -> None:
    pool = PortPool(20000, 20002)
    with pytest.raises(PortOutOfRangeError):
        pool.reserve("a", [pinned(20000), pinned(5)])
    assert pool.reserve("b", [UDP])[0].host == 20000


def test_avoided_port_of_the_range_is_the_last_one() -> None:
    pool = PortPool(20000, 20002)
    pool.avoid([Port(1, Protocol.UDP, 20000), Port(1, Protocol.UDP, 4)])
    assert pool.free(Protocol.UDP) == 3
    assert pool.reserve("a", [UDP])[0].host == 20001
    assert pool.reserve("b", [UDP])[0].host == 20002
    assert pool.reserve("c", [UDP])[0].host == 20000


def test_transferred_ports_stay_held_until_their_new_holder_releases_them() -> None:
    pool = PortPool(20000, 20009)
    ports = pool.reserve("prepared", [UDP, TCP])
    assert pool.transfer("prepared", "session") == ports
    pool.release("prepared")
    assert pool.free(Protocol.UDP) == 9
    assert pool.free(Protocol.TCP) == 9
    pool.release("session")
    assert pool.free(Protocol.UDP) == 10
    assert pool.free(Protocol.TCP) == 10


def test_held_port_that_another_process_uses_is_found() -> None:
    in_use: set[int] = set()
    pool = PortPool(20000, 20009, lambda _protocol, port: port not in in_use)
    ports = pool.reserve("a", [UDP, PortRequest(7778, Protocol.TCP, tls=True)], in_host=True)
    pool.check_unused(ports)
    in_use.add(ports[1].inner)
    with pytest.raises(PortTakenError):
        pool.check_unused(ports)


def test_rejects_pinned_port_in_use_or_out_of_range() -> None:
    pool = PortPool(20000, 20009)
    pool.reserve("a", [pinned(20003)])
    with pytest.raises(PortTakenError):
        pool.reserve("b", [pinned(20003)])
    pool.reserve("b", [pinned(20003, Protocol.TCP)])
    for outside in (1, 22, 19999, 20010, 65535):
        with pytest.raises(PortOutOfRangeError):
            pool.reserve("c", [pinned(outside)])


def test_adopted_ports_outside_the_range_are_not_reused() -> None:
    pool = PortPool(20000, 20001)
    pool.adopt("a", (Port(1, Protocol.UDP, 20000), Port(2, Protocol.UDP, 31000)))
    assert pool.reserve("b", [UDP])[0].host == 20001
    pool.release("a")
    assert pool.free(Protocol.UDP) == 1


def test_port_of_two_adopted_sessions_is_free_after_both_end() -> None:
    pool = PortPool(20000, 20000)
    for name in ("a", "b"):
        pool.adopt(name, (Port(1, Protocol.UDP, 20000),))
    pool.release("a")
    with pytest.raises(NoFreePortError):
        pool.reserve("c", [UDP])
    pool.release("b")
    assert pool.reserve("c", [UDP])[0].host == 20000


def test_pinned_port_in_use_is_refused_and_moves_to_the_end() -> None:
    others = {(Protocol.UDP, 20000)}
    pool = PortPool(20000, 20002, lambda *port: port not in others)
    with pytest.raises(PortTakenError) as error:
        pool.reserve("a", [UDP, pinned(20000)])
    assert error.value.port == 20000
    assert pool.free(Protocol.UDP) == 3
    others.clear()
    assert [pool.reserve(str(n), [UDP])[0].host for n in range(3)] == [20001, 20002, 20000]


def test_each_port_in_use_is_checked_once() -> None:
    asked: list[int] = []

    def never(_: Protocol, port: int) -> bool:
        asked.append(port)
        return False

    pool = PortPool(20000, 20002, never)
    with pytest.raises(NoFreePortError):
        pool.reserve("a", [UDP])
    assert asked == [20000, 20001, 20002]
    assert pool.free(Protocol.UDP) == 3


def test_skips_a_limited_number_of_ports_per_request() -> None:
    free_from = 20000 + TRIES
    pool = PortPool(20000, 30000, lambda _, port: port >= free_from)
    with pytest.raises(NoFreePortError):
        pool.reserve("a", [UDP])
    assert pool.reserve("a", [UDP])[0].host == free_from


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans())))
def test_port_released_longest_ago_is_next(moves: list[tuple[int, bool]]) -> None:
    pool = PortPool(20000, 20004)
    released = {port: index - 5 for index, port in enumerate(range(20000, 20005))}
    held: dict[str, int] = {}
    for moment, (number, after_restart) in enumerate(moves):
        name = str(number)
        if name in held:
            pool.release(name)
            released[held.pop(name)] = moment
        elif len(held) < 5:
            free = set(released) - set(held.values())
            held[name] = pool.reserve(name, [UDP])[0].host
            assert held[name] == min(free, key=lambda port: released[port])
        if after_restart:
            pool = PortPool(20000, 20004)
            for name, port in held.items():
                pool.adopt(name, (Port(7777, Protocol.UDP, port),))
            for port in sorted(released, key=lambda port: released[port]):
                pool.avoid([Port(7777, Protocol.UDP, port)])


def test_inner_tls_port_is_never_a_pinned_one() -> None:
    pool = PortPool(20000, 20009)
    named = [PortRequest(n, Protocol.TCP, tls=True, pinned=20000 + n) for n in (0, 1)]
    ports = pool.reserve("a", named, in_host=True)
    assert [(port.host, port.inner) for port in ports] == [(20000, 20002), (20001, 20003)]


def test_tls_port_in_the_host_network_takes_two() -> None:
    pool = PortPool(20000, 20003)
    tls = PortRequest(7778, Protocol.TCP, tls=True, pinned=20002)
    [port] = pool.reserve("a", [tls], in_host=True)
    assert port.host == 20002
    assert port.inner == 20000
    assert port.own == 20000
    with pytest.raises(NoFreePortError):
        pool.reserve("b", [PortRequest(n, Protocol.TCP, tls=True) for n in (1, 2)], in_host=True)
    assert pool.free(Protocol.TCP) == 2
    [alone] = pool.reserve("c", [PortRequest(7778, Protocol.TCP, tls=True)])
    assert alone.inner == 0
    assert alone.own == alone.host
    pool.release("a")
    again = PortPool(20000, 20003)
    again.adopt("a", (port,))
    assert pool.free(Protocol.TCP) == 3
    assert again.free(Protocol.TCP) == 2


@given(
    st.lists(
        st.tuples(
            st.integers(0, 4),
            st.lists(
                st.builds(
                    PortRequest,
                    container=st.integers(1, 9),
                    protocol=st.sampled_from(Protocol),
                    tls=st.booleans(),
                    pinned=st.sampled_from([0, 0, 20000, 20001, 20002, 20003, 5]),
                ),
                max_size=3,
            ),
        )
    )
)
def test_no_port_is_held_twice_or_lost(moves: list[tuple[int, list[PortRequest]]]) -> None:
    pool = PortPool(20000, 20003)
    held: dict[str, tuple[Port, ...]] = {}
    for number, requests in moves:
        name = str(number)
        if name in held:
            pool.release(name)
            del held[name]
            continue
        with contextlib.suppress(AgentError):
            held[name] = pool.reserve(name, requests, in_host=bool(number % 2))
        ports = itertools.chain(*held.values())
        taken = [(port.protocol, each) for port in ports for each in port.taken]
        assert len(taken) == len(set(taken))
        for protocol in Protocol:
            mine = sum(1 for kind, _ in taken if kind is protocol)
            assert pool.free(protocol) == 4 - mine
