"""Real echoes: answered, dropped by a firewall, forged, and by a process that may not send any."""

import asyncio
import contextlib
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from icmplib import ICMPv4Socket

from controlplane.fleet import icmp
from controlplane.fleet.icmp import ping
from tests.support.controlplane.system import System
from tests.support.private_network import PrivateNetwork, run

pytestmark = pytest.mark.root
ROOT = Path(__file__).resolve().parents[2]
IDENTIFIER = 4711
SEQUENCE = 1
DROP = ["INPUT", "-p", "icmp", "-j", "DROP"]
CHILD = """
import asyncio
from controlplane.fleet.icmp import CannotPingError, ping
try:
    print("none" if asyncio.run(ping("127.0.0.1", 5.0)) is None else "answered")
except CannotPingError as error:
    print("cannot", bool(str(error)))
"""


@pytest.fixture
def network() -> Iterator[PrivateNetwork]:
    with PrivateNetwork.made() as network:
        yield network


@contextlib.contextmanager
def without_answers(network: PrivateNetwork) -> Iterator[None]:
    """Have a firewall at the other end drop every echo."""
    run(*network.inside("iptables", "-w", "-I", *DROP))
    yield
    run(*network.inside("iptables", "-w", "-D", *DROP))


async def test_an_echo_is_answered_or_dropped(network: PrivateNetwork) -> None:
    seconds = await ping(network.address, 5.0)
    assert seconds is not None
    assert 0 < seconds < 5
    with without_answers(network):
        assert await ping(network.address, 0.05) is None
    assert await ping(network.address, 5.0) is not None


async def test_an_address_without_a_route_does_not_answer(network: PrivateNetwork) -> None:
    subnet, _, last = network.address.rpartition(".")
    assert await ping(f"{subnet}.{int(last) + 1}", 0.05) is None  # the subnet's broadcast
    assert await ping("255.255.255.255", 0.05) is None


async def test_an_answer_from_another_address_is_none(
    network: PrivateNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(icmp, "unique_identifier", lambda: IDENTIFIER)
    with without_answers(network), ICMPv4Socket() as forger:
        asked = asyncio.create_task(ping(network.address, 0.2))
        answer = struct.pack("!BBHHH", 0, 0, 0xFFFF - IDENTIFIER - SEQUENCE, IDENTIFIER, SEQUENCE)
        while not asked.done():
            forger.sock.sendto(answer, ("127.0.0.1", 0))
            await asyncio.sleep(0)
        assert await asked is None


@pytest.mark.parametrize(
    ("privileged", "groups", "printed"),
    [
        (True, "1 0", "answered"),
        (False, "0 2147483647", "answered"),
        (False, "1 0", "cannot True"),
    ],
)
def test_echoes_need_a_socket_that_is_permitted(
    network: PrivateNetwork, privileged: bool, groups: str, printed: str
) -> None:
    run(*network.inside("sh", "-c", f"echo {groups} > /proc/sys/net/ipv4/ping_group_range"))
    without = [] if privileged else ["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw"]
    line = network.inside(*without, sys.executable, "-W", "error", "-c", CHILD)
    child = subprocess.run(line, check=True, capture_output=True, text=True, timeout=50, cwd=ROOT)
    assert child.stdout.strip() == printed
    assert child.stderr == ""


@pytest.mark.slow
async def test_a_region_whose_hosts_do_not_answer_stays_and_its_addresses_go(
    network: PrivateNetwork, tmp_path: Path
) -> None:
    system = System(tmp_path, latency_interval=1.0)
    system.agent.host.latency_addresses[:] = [network.address]

    async def shown(*ips: str) -> None:
        locations = {"locations": [{"id": "local", "ips": list(ips)}]}
        await system.until("/available-location/game", lambda found: found == locations)

    async def agent() -> Any:
        return await system.read("/operator/agent/a0")

    async with system:
        await system.make_application()
        await system.until("/operator/agent/a0", lambda shown: shown["latency"] is not None)
        assert (await agent())["unresponsiveAddresses"] == []
        await shown(network.address)
        with without_answers(network):
            await shown()
            unresponsive = await agent()
            assert unresponsive["latency"] is None
            assert unresponsive["unresponsiveAddresses"] == [network.address]
            assert (await system.start(id="s")).status == 201
        await shown(network.address)
