"""Whose ports are bound, asked of this machine's kernel."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from agent.network.bindings import Bindings
from agent.network.socket_diag import BoundSocket, group_of, is_bound_by, sockets_on
from agent.processes import live_process
from agent.sessions.session import NetworkMode, Port, Process, Protocol
from tests.harness import free_port

CAPABILITY_VERSION_3 = 0x20080522
KINDS = {Protocol.UDP: socket.SOCK_DGRAM, Protocol.TCP: socket.SOCK_STREAM}
ADDRESSES = {"0.0.0.0": True, "::": True, "127.0.0.1": False, "::1": False}


@pytest.fixture
async def bindings() -> AsyncIterator[Bindings]:
    made = Bindings()
    yield made
    await made.close()


@pytest.fixture
def me() -> Process:
    process = live_process(os.getpid())
    assert process is not None
    return process


@contextmanager
def bound(protocol: Protocol, address: str) -> Iterator[int]:
    """A socket of this process; its port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, KINDS[protocol]) as held:
        if protocol is Protocol.TCP:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((address, port := free_port()))
        if protocol is Protocol.TCP:
            held.listen()
        yield port


def ports(protocol: Protocol, *numbers: int) -> tuple[Port, ...]:
    """Ports that have the same number inside and outside."""
    return tuple(Port(number, protocol, number) for number in numbers)


@pytest.mark.parametrize("mode", NetworkMode)
@pytest.mark.parametrize("protocol", Protocol)
@pytest.mark.parametrize("address", ADDRESSES)
async def test_a_port_is_bound_when_players_can_reach_it(
    bindings: Bindings, me: Process, address: str, protocol: Protocol, mode: NetworkMode
) -> None:
    with bound(protocol, address) as port:
        found = await bindings.all_bound(me, mode, ports(protocol, port))
        assert found is ADDRESSES[address]
    assert not await bindings.all_bound(me, mode, ports(protocol, port))


@pytest.mark.parametrize("mode", NetworkMode)
async def test_all_ports_count_each_by_its_protocol(
    bindings: Bindings, me: Process, mode: NetworkMode
) -> None:
    udp, tcp = Protocol.UDP, Protocol.TCP
    with bound(udp, "0.0.0.0") as first, bound(udp, "::") as second, bound(tcp, "::") as third:
        wanted = ports(udp, first, second) + ports(tcp, third)
        assert await bindings.all_bound(me, mode, wanted)
        assert not await bindings.all_bound(me, mode, wanted + ports(tcp, first))
    assert not await bindings.all_bound(me, mode, wanted)


@pytest.mark.parametrize("mode", NetworkMode)
async def test_a_socket_that_does_not_listen_or_is_connected_is_not_bound(
    bindings: Bindings, me: Process, mode: NetworkMode
) -> None:
    with socket.socket() as quiet, socket.socket(type=socket.SOCK_DGRAM) as connected:
        quiet.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        quiet.bind(("0.0.0.0", free_port()))
        connected.bind(("0.0.0.0", free_port()))
        connected.connect(("192.0.2.1", 9))
        for protocol, held in ((Protocol.TCP, quiet), (Protocol.UDP, connected)):
            assert not await bindings.all_bound(me, mode, ports(protocol, held.getsockname()[1]))


@pytest.mark.parametrize("mode", NetworkMode)
async def test_of_a_process_that_is_gone_nothing_is_bound(
    bindings: Bindings, me: Process, mode: NetworkMode
) -> None:
    later = Process(me.pid, me.start_ticks + 1)
    nobody = Process(2**22 - 1, 1)
    with bound(Protocol.UDP, "0.0.0.0") as port:
        for process in (later, nobody):
            assert not await bindings.all_bound(process, mode, ports(Protocol.UDP, port))


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "127.0.0.1", "::1"])
async def test_before_a_tls_port_of_the_host_the_process_is_reached_by_the_agent(
    bindings: Bindings, me: Process, address: str
) -> None:
    with bound(Protocol.TCP, address) as inner, bound(Protocol.TCP, "0.0.0.0") as agents:
        [plain] = ports(Protocol.TCP, agents)
        tls = replace(plain, tls=True, inner=inner)
        found = await bindings.all_bound(me, NetworkMode.HOST, [tls])
        assert found is (address != "::1")
    assert not await bindings.all_bound(me, NetworkMode.HOST, [tls])


def test_the_kernel_tells_address_port_and_group() -> None:
    with bound(Protocol.TCP, "127.0.0.1") as port:
        [found] = sockets_on(Protocol.TCP, port)
        assert (found.address, found.port) == (bytes([127, 0, 0, 1]), port)
        assert not list(sockets_on(Protocol.UDP, port))
    with bound(Protocol.UDP, "::") as port:
        [found] = sockets_on(Protocol.UDP, port)
        assert (found.address, found.port) == (bytes(16), port)


@pytest.mark.parametrize(
    ("asked", "told", "is_bound"),
    [(1, 1, True), (1, 2, False), (1, None, True), (None, 2, True)],
)
def test_only_the_sockets_of_its_group_count_where_groups_are_known(
    monkeypatch: pytest.MonkeyPatch, asked: int | None, told: int | None, *, is_bound: bool
) -> None:
    monkeypatch.setattr(
        "agent.network.socket_diag.sockets_on", lambda *_: [BoundSocket(bytes(4), 20000, told)]
    )
    assert is_bound_by(asked, Protocol.UDP, 20000) is is_bound


def test_a_process_that_is_gone_has_no_group() -> None:
    assert group_of(2**22 - 1) is None


def without_capabilities(work: Callable[[], None]) -> None:
    """Do something on a thread that may nothing, and fail as it does."""
    failed: list[BaseException] = []

    def run() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
        try:
            assert libc.capset(header, (ctypes.c_uint32 * 6)()) == 0
            work()
        except BaseException as error:  # noqa: BLE001  # for the test's own thread
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def test_it_takes_no_capability() -> None:
    def work() -> None:
        with bound(Protocol.UDP, "0.0.0.0") as port:
            assert [found.port for found in sockets_on(Protocol.UDP, port)] == [port]

    without_capabilities(work)
