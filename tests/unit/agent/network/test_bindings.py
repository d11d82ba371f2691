"""Checks of bound ports with the kernel of this machine."""

import asyncio
import ipaddress
import os
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.domain.sessions.session import Port, Process
from agent.kernel.processes import live_process
from agent.network.bindings import MOST_SOCKETS, Bindings, FoundSocket, compare_ports
from agent.network.socket_diag import (
    BoundSocket,
    TooManySocketsError,
    group_id_of,
    is_bound_by,
    is_reachable,
)
from tests.support.agent.bytes_read import bytes_read
from tests.support.harness import free_port
from tests.unit.agent.network.test_port_probe import bound
from tiltyard.contract import NetworkMode, Protocol
from tiltyard.ends import BoundPort, PortBindings, UnboundPort

ADDRESSES = {"0.0.0.0": True, "::": True, "127.0.0.1": False, "::1": False}


@pytest.fixture
async def bindings() -> AsyncIterator[Bindings]:
    made = Bindings()
    yield made
    await made.close()


@pytest.fixture
def me() -> Process:
    return live_process(os.getpid()) or Process(0, 0)


def ports(protocol: Protocol, *numbers: int) -> tuple[Port, ...]:
    """Return ports with the same number inside and outside."""
    return tuple(Port(number, protocol, number) for number in numbers)


@pytest.mark.parametrize("mode", NetworkMode)
@pytest.mark.parametrize("protocol", Protocol)
@pytest.mark.parametrize("address", ADDRESSES)
async def test_port_is_bound_if_players_can_reach_it(
    bindings: Bindings, me: Process, address: str, protocol: Protocol, mode: NetworkMode
) -> None:
    with bound(protocol, address) as port:
        assert await bindings.all_bound(me, mode, ports(protocol, port)) is ADDRESSES[address]
    assert not await bindings.all_bound(me, mode, ports(protocol, port))


@pytest.mark.parametrize("mode", NetworkMode)
async def test_checks_ports_by_kind(bindings: Bindings, me: Process, mode: NetworkMode) -> None:
    udp = Protocol.UDP
    tcp = Protocol.TCP
    with bound(udp, "0.0.0.0") as first, bound(udp, "::") as second, bound(tcp, "::") as third:
        wanted = ports(udp, first, second) + ports(tcp, third)
        assert await bindings.all_bound(me, mode, wanted)
        assert not await bindings.all_bound(me, mode, wanted + ports(tcp, first))
    assert not await bindings.all_bound(me, mode, wanted)


@pytest.mark.parametrize("mode", NetworkMode)
async def test_ignores_connected_and_non_listening_sockets(
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
async def test_dead_process_is_unbound(bindings: Bindings, me: Process, mode: NetworkMode) -> None:
    later = Process(me.pid, me.start_ticks + 1)
    missing = Process(2**22 - 1, 1)
    with bound(Protocol.UDP, "0.0.0.0") as port:
        for process in (later, missing):
            assert not await bindings.all_bound(process, mode, ports(Protocol.UDP, port))


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "127.0.0.1", "::1"])
async def test_inner_port_is_on_loopback(bindings: Bindings, me: Process, address: str) -> None:
    with bound(Protocol.TCP, address) as inner, bound(Protocol.TCP, "0.0.0.0") as agents:
        [plain] = ports(Protocol.TCP, agents)
        tls = replace(plain, tls=True, inner=inner)
        assert await bindings.all_bound(me, NetworkMode.HOST, [tls]) is (address != "::1")
    assert not await bindings.all_bound(me, NetworkMode.HOST, [tls])


def udp_table(first: int, sockets: int) -> str:
    """Return the text of /proc/net/udp with wildcard sockets from port `first` on."""
    rest = "00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0 0"
    return "  sl  local_address rem_address   st tx_queue rx_queue\n" + "".join(
        f"{first + at:5d}: 00000000:{first + at:04X} {rest}\n" for at in range(sockets)
    )


def net_folder(proc: Path, process: Process) -> Path:
    """Create a replacement of /proc/<pid>/net without sockets."""
    net = proc / str(process.pid) / "net"
    net.mkdir(parents=True)
    (net / "sockstat").write_text("UDP: inuse 3 mem 0\n")
    return net


async def test_check_of_too_many_sockets_is_bounded(tmp_path: Path, me: Process) -> None:
    """It ends when all ports are found, or at MOST_SOCKETS."""
    udp = net_folder(tmp_path, me) / "udp"
    udp.write_text(udp_table(1, 60_000))
    bindings = Bindings(tmp_path)

    async def finds_all() -> None:
        assert await bindings.all_bound(me, NetworkMode.BRIDGE, ports(Protocol.UDP, 1, 2))

    async def finds_too_many() -> None:
        with pytest.raises(TooManySocketsError, match="more than 8192 sockets"):
            await bindings.all_bound(me, NetworkMode.BRIDGE, ports(Protocol.UDP, 1, 60_001))

    assert await bytes_read(finds_all) < 2**18
    assert await bytes_read(finds_too_many) < udp.stat().st_size / 3
    udp.write_text(udp_table(1, MOST_SOCKETS))
    assert await bindings.all_bound(me, NetworkMode.BRIDGE, ports(Protocol.UDP, MOST_SOCKETS))
    await bindings.close()


async def test_check_of_few_sockets_waits_for_none_of_many(tmp_path: Path, me: Process) -> None:
    other = await asyncio.to_thread(live_process, os.getppid())
    assert other is not None
    (net_folder(tmp_path, me) / "udp").write_text(udp_table(1, 1))
    table = net_folder(tmp_path, other) / "udp"
    os.mkfifo(table)
    kernel = os.open(table, os.O_RDWR | os.O_NONBLOCK)
    bindings = Bindings(tmp_path)
    long = asyncio.create_task(
        bindings.all_bound(other, NetworkMode.BRIDGE, ports(Protocol.UDP, 2))
    )
    await asyncio.sleep(0)  # its check starts first
    try:
        async with asyncio.timeout(30):
            assert await bindings.all_bound(me, NetworkMode.BRIDGE, ports(Protocol.UDP, 1))
        assert not long.done()
    finally:
        os.write(kernel, udp_table(2, 1).encode())
        assert await long
        await bindings.close()
        os.close(kernel)


async def test_listing_sockets_of_one_host_port_is_bounded(
    bindings: Bindings, me: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = 0

    def others(*_: object) -> Iterator[BoundSocket]:
        nonlocal listed
        for number in range(100 * MOST_SOCKETS):
            listed = number
            yield BoundSocket(bytes(4), 20000, -1)

    monkeypatch.setattr("agent.network.socket_diag.sockets_on", others)
    monkeypatch.setattr("agent.network.bindings.group_id_of", lambda _: 1)
    with pytest.raises(TooManySocketsError):
        await bindings.all_bound(me, NetworkMode.HOST, ports(Protocol.UDP, 20000))
    assert listed < 2 * MOST_SOCKETS


@pytest.mark.parametrize(
    ("wanted", "reported", "is_bound"),
    [
        (1, 1, True),
        (1, 2, False),
        (1, None, True),
        (None, 2, True),
    ],
)
def test_matches_control_group_if_known(
    monkeypatch: pytest.MonkeyPatch, wanted: int | None, reported: int | None, *, is_bound: bool
) -> None:
    found = [BoundSocket(bytes(4), 20000, reported)]
    monkeypatch.setattr("agent.network.socket_diag.sockets_on", lambda *_: found)
    assert is_bound_by(wanted, Protocol.UDP, 20000, loopback=False, most=9) is is_bound


def test_loopback_is_not_reachable_by_players() -> None:
    assert not is_reachable(ipaddress.ip_address("127.255.1.2").packed)
    assert not is_reachable(ipaddress.ip_address("::ffff:127.0.0.1").packed)
    assert is_reachable(ipaddress.ip_address("::ffff:172.17.0.2").packed)


async def test_names_unbound_ports_and_those_bound_instead(
    bindings: Bindings, me: Process
) -> None:
    """In a network of its own, where all sockets are the session's."""
    udp = Protocol.UDP
    tcp = Protocol.TCP
    with bound(udp, "0.0.0.0") as first, bound(tcp, "127.0.0.1") as local:
        wanted = ports(udp, first) + ports(tcp, first, local)
        found = await bindings.compared(me, NetworkMode.BRIDGE, wanted)
        alone = await bindings.compared(me, NetworkMode.BRIDGE, ports(tcp, local))
    assert found.unbound == (
        UnboundPort(tcp, first, first),
        UnboundPort(tcp, local, local, loopback=True),
    )
    assert alone.unbound == (UnboundPort(tcp, local, local, loopback=True),)


UDP_SOCKET = FoundSocket(Protocol.UDP, 7778, is_reachable=True, is_local=True)


def test_others_are_reachable_undeclared_and_few() -> None:
    many = [
        FoundSocket(protocol, port, is_reachable=True, is_local=True)
        for port in range(9000, 8980, -1)
        for protocol in (Protocol.UDP, Protocol.TCP)
    ]
    local = FoundSocket(Protocol.TCP, 1, is_reachable=False, is_local=True)
    declared = ports(Protocol.UDP, 7777, 7778)
    found = compare_ports(declared, [*many, local, UDP_SOCKET], in_host_network=False)
    assert found.unbound == (UnboundPort(Protocol.UDP, 7777, 7777),)
    assert [other.port for other in found.others] == [
        8981,
        8981,
        8982,
        8982,
        8983,
        8983,
        8984,
        8984,
        8985,
        8985,
    ]
    assert found.others[0] == BoundPort(Protocol.TCP, 8981)


def test_in_the_hosts_network_a_port_has_the_number_that_the_process_is_given() -> None:
    plain = Port(7777, Protocol.UDP, 20_000)
    tls = Port(443, Protocol.TCP, 20_001, tls=True, inner=20_002)
    behind = FoundSocket(Protocol.TCP, 20_002, is_reachable=False, is_local=True)
    assert compare_ports([plain, tls], [behind], in_host_network=True) == PortBindings(
        (UnboundPort(Protocol.UDP, 7777, 20_000),)
    )
    own = FoundSocket(Protocol.UDP, 20_000, is_reachable=True, is_local=True)
    assert compare_ports([plain], [own], in_host_network=True) == PortBindings(())


async def test_same_port_is_bound_by_its_host_number(bindings: Bindings, me: Process) -> None:
    with bound(Protocol.UDP, "0.0.0.0") as port:
        same = Port(7777, Protocol.UDP, port, same=True)
        other = Port(port, Protocol.UDP, port + 1, same=True)
        assert await bindings.all_bound(me, NetworkMode.BRIDGE, [same])
        assert not await bindings.all_bound(me, NetworkMode.BRIDGE, [other])
        found = await bindings.compared(me, NetworkMode.BRIDGE, [same, other])
    assert found.unbound == (UnboundPort(Protocol.UDP, port, port + 1),)


@pytest.mark.parametrize("mode", NetworkMode)
async def test_nothing_is_bound_by_a_process_that_has_ended(
    bindings: Bindings, me: Process, mode: NetworkMode
) -> None:
    later = Process(me.pid, me.start_ticks + 1)
    with bound(Protocol.UDP, "0.0.0.0") as port:
        found = await bindings.compared(later, mode, ports(Protocol.UDP, port))
    assert found == PortBindings((UnboundPort(Protocol.UDP, port, port),))


async def test_sockets_of_others_in_the_hosts_network_are_not_named(
    bindings: Bindings, me: Process
) -> None:
    """The test's own process has a control group that it shares with no other process."""
    with bound(Protocol.UDP, "0.0.0.0") as port, bound(Protocol.UDP, "0.0.0.0") as other:
        found = await bindings.compared(me, NetworkMode.HOST, ports(Protocol.UDP, port))
    assert found.unbound == ()
    if await asyncio.to_thread(group_id_of, me.pid) is None:  # its owner is unknown
        assert found.others == ()
    else:
        assert BoundPort(Protocol.UDP, other) in found.others


async def test_comparison_reads_a_bounded_number_of_sockets(tmp_path: Path, me: Process) -> None:
    udp = net_folder(tmp_path, me) / "udp"
    udp.write_text(udp_table(1, 60_000))
    bindings = Bindings(tmp_path)
    asked = ports(Protocol.UDP, 59_000)
    read = await bytes_read(lambda: bindings.compared(me, NetworkMode.BRIDGE, asked))
    found = await bindings.compared(me, NetworkMode.BRIDGE, asked)
    assert read < 3 * MOST_SOCKETS * 128
    assert [port.container for port in found.unbound] == [59_000]
    await bindings.close()
