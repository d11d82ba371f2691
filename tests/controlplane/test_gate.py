"""Who is let in, and which address a request counts for; without a connection."""

import asyncio
import socket

import pytest

from controlplane.http.gate import Bounds, Gate, listen
from controlplane.settings.model import Config


def test_other_than_loopback_needs_tls_or_a_proxy() -> None:
    assert len([*Config(api_listen="0.0.0.0:80").mistakes()]) == 1
    config = Config(api_listen="0.0.0.0:80", behind_proxy=("10.0.0.0/8",))
    assert not [*config.mistakes()]
    gate = Gate(Bounds.of_api(config))
    assert all(gate.admit(address) for address in ("10.1.1.1", "127.0.0.1", "::1"))
    assert not gate.admit("11.1.1.1")


@pytest.mark.parametrize(
    ("peer", "forwarded", "caller"),
    [
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["6.6.6.6, 1.1.1.1"], "1.1.1.1"),
        ("10.0.0.1", ["6.6.6.6", "1.1.1.1,10.0.0.2 ", "fd00::1"], "1.1.1.1"),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", ["6.6.6.6, unknown"], "10.0.0.1"),
        ("10.0.0.1", ["1.1.1.1:80"], "1.1.1.1"),
        ("10.0.0.1", ["[2001:db8::1]:80"], "2001:db8::1"),
        ("10.0.0.1", ["::ffff:1.1.1.1"], "1.1.1.1"),
        ("10.0.0.1", ["", ",,"], "10.0.0.1"),
        ("11.0.0.1", ["1.1.1.1"], "11.0.0.1"),
        ("::ffff:10.0.0.1", ["1.1.1.1"], "1.1.1.1"),
    ],
)
def test_the_caller_behind_proxies(peer: str, forwarded: list[str], caller: str) -> None:
    gate = Gate(Bounds.of_api(Config(behind_proxy=("10.0.0.0/8", "fd00::/8"))))
    assert gate.caller(peer, forwarded) == caller


def test_caps_count_an_ipv6_network_as_one_caller() -> None:
    gate = Gate(Bounds.of_api(Config(max_connections_per_address=1)))
    assert gate.take("2001:db8::1")
    assert not gate.take("2001:db8::2")
    assert gate.take("2001:db8:0:1::1")
    gate.give("2001:db8::9")
    assert gate.take("2001:db8::2")


async def test_the_kernel_looks_for_peers_that_have_vanished() -> None:
    [listener] = await listen("127.0.0.1", 0, Gate(Bounds(total=1, per_address=1)))
    loop = asyncio.get_running_loop()
    with listener:
        _, writer = await asyncio.open_connection(*listener.getsockname())
        accepted, _ = await loop.sock_accept(listener)
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        writer.close()
