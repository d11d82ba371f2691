"""The TLS ports of sessions: where they listen, and where they lead."""

import contextlib
import os
import socket
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from agent.domain.errors import PortTakenError
from agent.domain.sessions.session import Port, Process
from agent.network.tls_gate import Limits
from agent.network.tls_ports import destination_of
from tests.support.agent.samples import an_id
from tests.support.agent.tls_players import HOST, Player, connection, trusting
from tests.support.agent.tls_served import (
    AUTHORITY,
    MYSELF,
    echo,
    is_echoed,
    received_all,
    running,
    serving,
)
from tests.support.harness import free_port
from tiltyard.contract import NetworkMode, Protocol, State


async def test_port_in_use_fails_and_releases_the_rest(tmp_path: Path) -> None:
    async with serving(tmp_path, echo) as served:
        mine = free_port()
        theirs = socket.create_server(("127.0.0.1", 0))
        with theirs:
            taken: int = theirs.getsockname()[1]
            ports = (
                Port(mine, Protocol.TCP, mine, tls=True),
                Port(taken, Protocol.TCP, taken, tls=True),
            )
            session = replace(served.session, internal_id=an_id(), ports=ports)
            with pytest.raises(PortTakenError):
                served.tls.open(session)
        with socket.create_server(("127.0.0.1", mine)):
            pass  # it is free again


async def test_adopted_session_gets_port_once_free(tmp_path: Path) -> None:
    async with serving(tmp_path, echo) as served:
        taken = free_port()
        with socket.create_server(("127.0.0.1", taken)):
            session = running(served.game.port, taken, MYSELF)
            served.tls.adopt(session)
            await served.tls.look()
            assert "TLS ports of 1 sessions are in use by others" in served.tls.warnings
        await served.tls.look()
        assert not served.tls.warnings
        async with replace(served, session=session).player() as player:
            await is_echoed(player)


async def test_end_of_session_closes_connections_and_frees_port(tmp_path: Path) -> None:
    limits = Limits(linger=0.05)
    async with serving(tmp_path, echo, limits=limits) as served, served.player() as player:
        await is_echoed(player)
        served.tls.close(served.session.internal_id)
        with socket.create_server(("127.0.0.1", served.port)), pytest.raises(ssl.SSLEOFError):
            await player.receive_all()
        await served.all_gone()


def test_destination_follows_process() -> None:
    process = Process(1, 2)
    session = running(7778, 20000, process)
    [port] = session.ports
    found = destination_of(session, port)
    assert found is not None
    assert found.address == "127.0.0.1"
    assert found.port == 7778
    assert found.process == process
    assert destination_of(session.with_changes(address=""), port) is None
    assert destination_of(session.with_changes(process=None), port) is None
    assert destination_of(session.to(State.DEAD, at=1.0), port) is None
    ending = session.to(State.SHUTTINGDOWN, at=1.0)
    assert destination_of(ending, port) == found, "players stay until the process has ended"
    in_host = replace(session, spec=replace(session.spec, network_mode=NetworkMode.HOST))
    assert destination_of(in_host, replace(port, inner=20001)) == replace(found, port=20001)


async def test_accepts_nothing_without_process(tmp_path: Path) -> None:
    async with serving(tmp_path, echo) as served:
        served.tls.follow(served.session.with_changes(process=None))
        with pytest.raises(OSError):  # noqa: PT011 - an end, or a reset
            async with served.player():
                pass
        served.tls.follow(served.session)
        async with served.player() as player:
            await is_echoed(player)


async def test_sends_nothing_to_another_process_at_the_address(tmp_path: Path) -> None:
    """Like an address that is reused before the agent sees the container's end."""

    async def receive_nothing(made: socket.socket) -> None:
        assert not await received_all(made)

    async with serving(tmp_path, receive_nothing) as served:
        ended = Process(os.getpid(), MYSELF.start_ticks - 1)
        served.tls.follow(served.session.with_changes(process=ended))
        async with served.player() as player:
            with contextlib.suppress(OSError):
                await player.send(b"secret")
                assert await player.receive_all() == b""
        await served.all_gone()


async def test_player_with_early_data_sees_end_if_game_does_not_listen(tmp_path: Path) -> None:
    async with serving(tmp_path, echo) as served:
        await served.game.close()
        async with connection(served.port) as made:
            player = Player(made, trusting(AUTHORITY, ssl.TLSVersion.TLSv1_3), HOST)
            await player.shake_hands(b"hello")
            assert await player.receive_all() == b""
        await served.all_gone()


async def test_connections_have_keepalive_and_no_delay(tmp_path: Path) -> None:
    async with serving(tmp_path, echo) as served, served.player() as player:
        await is_echoed(player)
        keepalive = []
        no_delay = []
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names of numbers
            with (
                contextlib.suppress(OSError, IndexError),  # not a TCP socket
                socket.socket(fileno=os.dup(int(name))) as held,
            ):
                to_game = held.getpeername()[1] == served.game.port
                if to_game or held.getsockname()[1] == served.port:
                    keepalive.append(held.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
                    no_delay.append(held.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        assert keepalive == [1, 1], "one to the player, and one to the game"
        assert no_delay == [1, 1]
