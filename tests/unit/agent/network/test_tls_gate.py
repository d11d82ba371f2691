"""Limits of the connections and handshakes of TLS ports."""

import asyncio
import contextlib
import os
import socket
from pathlib import Path

import pytest

from agent.network.tls_gate import Gate, Limits
from tests.support.agent.hosts import until
from tests.support.agent.tls_players import connection
from tests.support.agent.tls_served import (
    echo,
    is_echoed,
    serving,
)


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b""],
    ids=["http", "half", "nothing"],
)
@pytest.mark.parametrize("hangs_up", [True, False], ids=["hangs-up", "stays"])
async def test_disconnects_without_handshake(tmp_path: Path, sent: bytes, hangs_up: bool) -> None:
    loop = asyncio.get_running_loop()
    async with serving(tmp_path, echo, limits=Limits(handshake=0.1)) as served:
        async with connection(served.port) as made:
            await loop.sock_sendall(made, sent)
            if hangs_up:
                made.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError):
                while await loop.sock_recv(made, 65536):
                    pass  # there may be an alert
        await served.all_gone()
        assert served.game.connections == 0


@pytest.mark.parametrize("bound", ["total", "per_port", "per_address"])
async def test_closes_connections_over_limit(tmp_path: Path, bound: str) -> None:
    limits = Limits(**{bound: 2})
    async with serving(tmp_path, echo, limits=limits) as served, served.player() as first:
        async with served.player():
            with pytest.raises(OSError):  # noqa: PT011 - an end, or a reset
                async with served.player():
                    pass
        await until(lambda: served.tls.connections == 1)
        async with served.player() as third:
            for player in (first, third):
                await is_echoed(player)


def test_counts_ipv4_addresses_and_ipv6_networks() -> None:
    gate = Gate(Limits(per_address=1))
    assert gate.refusal(1, "192.0.2.1") == ""
    assert gate.refusal(1, "192.0.2.2") == ""
    assert gate.refusal(1, "::ffff:192.0.2.1") == "the address's"
    assert gate.refusal(1, "2001:db8::1") == ""
    assert gate.refusal(1, "2001:db8::2") == "the address's"
    gate.release(1, "2001:db8::1")
    assert gate.refusal(2, "2001:db8::2") == ""


async def test_new_handshake_replaces_oldest(tmp_path: Path) -> None:
    limits = Limits(handshakes=2)
    idle = contextlib.AsyncExitStack()
    async with serving(tmp_path, echo, limits=limits) as served, idle:
        for _ in range(50):
            await idle.enter_async_context(connection(served.port))
        async with served.player() as player:
            await is_echoed(player)
            assert served.tls.connections <= 3


async def test_thousand_connections_leave_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, echo, limits=Limits(per_address=100, handshakes=50)) as served:
        before = _open_sockets()
        for _ in range(10):
            async with contextlib.AsyncExitStack() as many:
                for number in range(100):
                    made = await many.enter_async_context(connection(served.port))
                    if number % 3:
                        await asyncio.get_running_loop().sock_sendall(made, os.urandom(number))
        await served.all_gone()
        await until(lambda: _open_sockets() <= before)  # earlier tests may still close some


def _open_sockets() -> int:
    """Count the sockets of this process alone: other threads may open files."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += str(descriptor.readlink()).startswith("socket:")
    return found
