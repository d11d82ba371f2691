"""Plaintext between players and the game: both directions, their ends, and slow readers."""

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from agent.network.tls_gate import Limits
from agent.network.tls_relay import TlsStream
from tests.support.agent.hosts import until
from tests.support.agent.tls_players import BOTH, HOST, Player, connection, issue, trusting
from tests.support.agent.tls_served import (
    AUTHORITY,
    received_all,
    serving,
)

PIECE = b"x" * 65536


@pytest.mark.parametrize("version", BOTH, ids=lambda version: version.name)
async def test_concurrent_sends_are_not_mixed(tmp_path: Path, version: ssl.TLSVersion) -> None:
    """A key update may be answered while the game's data waits for a slow reader."""
    files = issue(AUTHORITY, tmp_path / "pair")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    theirs, ours = socket.socketpair()
    with theirs, ours:
        for end in (theirs, ours):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        stream = TlsStream(ours, context)
        player = Player(theirs, trusting(AUTHORITY, version), HOST)
        await asyncio.gather(stream.handshake(), player.shake_hands())
        pieces = [b"%d" % number * 300_000 for number in range(3)]
        sending = [asyncio.create_task(stream.send(each), name="sending") for each in pieces]
        assert await player.exactly(900_000) == b"".join(pieces)
        await asyncio.gather(*sending)


@pytest.mark.parametrize("ends_tls", [True, False])
@pytest.mark.parametrize("version", BOTH, ids=lambda version: version.name)
async def test_player_receives_after_closing_its_side(
    tmp_path: Path, version: ssl.TLSVersion, *, ends_tls: bool
) -> None:
    async def answer_at_the_end(made: socket.socket) -> None:
        question = await received_all(made)
        await asyncio.get_running_loop().sock_sendall(made, question)

    question = b"question" * 20_000
    context = trusting(AUTHORITY, version)
    async with serving(tmp_path, answer_at_the_end) as served, served.player(context) as player:
        assert player.tls.selected_alpn_protocol() is None
        await player.send(question)
        if ends_tls:
            await player.end()
        else:  # as many clients do, without a close_notify
            player.socket.shutdown(socket.SHUT_WR)
        assert await player.receive_all() == question
        await served.all_gone()


@pytest.mark.parametrize("version", BOTH, ids=lambda version: version.name)
async def test_game_receives_after_its_close(tmp_path: Path, version: ssl.TLSVersion) -> None:
    received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def end_first(made: socket.socket) -> None:
        await asyncio.get_running_loop().sock_recv(made, 1)
        made.shutdown(socket.SHUT_WR)
        received.set_result(await received_all(made))

    context = trusting(AUTHORITY, version)
    async with serving(tmp_path, end_first) as served, served.player(context) as player:
        await player.send(b"!")
        player.tls.write(b"late")
        record = player.outgoing.read()
        await player.flush(record[:9])  # the game closes after half a record
        assert await player.receive_all() == b""
        await player.flush(record[9:])
        await player.end()
        assert await received == b"late"
        await served.all_gone()


async def test_player_can_keep_sending_after_game_has_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    begin = asyncio.get_running_loop().time
    passed = 0.0
    received = asyncio.Queue[bytes]()
    monkeypatch.setattr(loop, "time", lambda: begin() + passed)

    async def end_first(made: socket.socket) -> None:
        made.shutdown(socket.SHUT_WR)
        while data := await loop.sock_recv(made, 65536):
            await received.put(data)
        await received.put(b"")

    async with serving(tmp_path, end_first) as served, served.player() as player:
        assert await player.receive_all() == b""
        for number in range(4):
            await player.send(b"%d" % number)
            assert await received.get() == b"%d" % number
            passed += Limits().half_closed
            for _ in range(10):
                await asyncio.sleep(0)  # waiters for that time continue
        await player.end()
        assert await received.get() == b""
        await served.all_gone()


async def test_idle_player_is_disconnected_after_game_has_closed(tmp_path: Path) -> None:
    async def hang_up(made: socket.socket) -> None:
        made.close()

    limits = Limits(half_closed=0.05)
    async with serving(tmp_path, hang_up, limits=limits) as served, served.player() as player:
        assert await player.receive_all() == b""
        await served.all_gone()


async def test_slow_reader_blocks_writer(tmp_path: Path) -> None:
    sent = 0
    wanted = 1024

    async def flood(made: socket.socket) -> None:
        nonlocal sent
        for _ in range(wanted):
            await asyncio.get_running_loop().sock_sendall(made, PIECE)
            sent += 1

    async with serving(tmp_path, flood) as served, connection(served.port) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        player = Player(made, trusting(AUTHORITY), HOST)
        await player.shake_hands()
        await until(lambda: sent > 0)
        before = -1
        while sent != before:  # the player does not read, so it stops
            before = sent
            for _ in range(500):
                await asyncio.sleep(0)
        assert 0 < sent < wanted / 2
        assert len(await player.receive_all()) == wanted * len(PIECE)


async def test_disconnects_player_who_reads_nothing(tmp_path: Path) -> None:
    async def flood(made: socket.socket) -> None:
        while True:
            await asyncio.get_running_loop().sock_sendall(made, PIECE)

    async with serving(tmp_path, flood, limits=Limits(unread=0.1)) as served, served.player():
        await served.all_gone()


async def test_last_data_of_game_is_delivered(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def say_and_end(made: socket.socket) -> None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        made.sendall(b"score" * 20_000)
        made.close()
        ended.set()

    async with serving(tmp_path, say_and_end) as served, served.player() as player:
        await ended.wait()
        served.tls.close(served.session.internal_id)
        assert await player.receive_all() == b"score" * 20_000
