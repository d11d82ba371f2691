"""Checks of bound ports with the kernel of this machine."""

import asyncio
import ipaddress
import os
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.domain.session import Port, Process
from agent.kernel.processes import live_process
from agent.network.bindings import MOST_SOCKETS, Bindings
from agent.network.socket_diag import BoundSocket, TooManySocketsError, is_bound_by, is_reachable
from tests.support.harness import free_port
from tests.unit.agent.network.test_port_probe import bound
from tiltyard.contract import NetworkMode, Protocol

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


def bytes_read() -> int:
    """Return the bytes read by all threads of this process."""
    [line] = [each for each in Path("/proc/self/io").read_text().splitlines() if "rchar" in each]
    return int(line.split()[1])


async def test_check_of_too_many_sockets_is_bounded(tmp_path: Path, me: Process) -> None:
    """It ends when all ports are found, or at MOST_SOCKETS."""
    udp = net_folder(tmp_path, me) / "udp"
    udp.write_text(udp_table(1, 60_000))
    bindings = Bindings(tmp_path)
    before = bytes_read()
    assert await bindings.all_bound(me, NetworkMode.BRIDGE, ports(Protocol.UDP, 1, 2))
    assert bytes_read() - before < 2**18
    with pytest.raises(TooManySocketsError, match="more than 8192 sockets"):
        await bindings.all_bound(me, NetworkMode.BRIDGE, ports(Protocol.UDP, 1, 60_001))
    assert bytes_read() - before < udp.stat().st_size / 3
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
    monkeypatch.setattr("agent.network.bindings.group_of", lambda _: 1)
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
