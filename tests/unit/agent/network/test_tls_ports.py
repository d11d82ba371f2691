"""TLS ports on loopback, with real handshakes and a socket of the test as the game."""

import asyncio
import contextlib
import os
import socket
import ssl
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from agent.domain.errors import NoCertificateError, PortTakenError
from agent.domain.session import Port, Process, Session
from agent.kernel.processes import live_process
from agent.network.tls_certificate import CertificateFiles
from agent.network.tls_gate import Gate, Limits
from agent.network.tls_ports import TlsPorts, destination_of
from agent.network.tls_relay import TlsStream
from tests.support.agent.hosts import until
from tests.support.agent.samples import a_spec, an_id
from tests.support.agent.tls_players import BOTH, HOST, Player, connection, issue, trusting
from tests.support.certificates import Signer
from tests.support.fakes import FakeClock
from tests.support.harness import free_port
from tiltyard.contract import NetworkMode, PortRequest, Protocol, State

AUTHORITY = Signer.new()
MYSELF = live_process(os.getpid()) or Process(0, 0)
PIECE = b"x" * 65536
Serve = Callable[[socket.socket], Awaitable[None]]


class Game:
    """Listens on loopback, calls `serve` with each connection, and counts connections."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self._tasks = {asyncio.create_task(self._accept(), name="game")}
        self.connections = 0
        self.port: int = self._socket.getsockname()[1]

    async def _accept(self) -> None:
        while True:
            made, _ = await asyncio.get_running_loop().sock_accept(self._socket)
            self.connections += 1
            self._tasks.add(asyncio.create_task(self._play(made), name="play"))

    async def _play(self, made: socket.socket) -> None:
        with made, contextlib.suppress(OSError):
            await self._serve(made)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._socket.close()


@dataclass
class Served:
    """TLS ports with one session, whose process is that of the test."""

    tls: TlsPorts
    session: Session
    game: Game
    files: CertificateFiles
    clock: FakeClock
    notified: list[None]

    @property
    def port(self) -> int:
        return self.session.ports[0].host

    def player(
        self, context: ssl.SSLContext | None = None
    ) -> contextlib.AbstractAsyncContextManager[Player]:
        return Player.connected(self.port, context or trusting(AUTHORITY))

    async def all_gone(self) -> None:
        await until(lambda: not self.tls.connections)


def running(container: int, host: int, process: Process | None) -> Session:
    """A running session with one TLS port, on a "bridge" at 127.0.0.1."""
    spec = replace(a_spec(), ports=(PortRequest(container, Protocol.TCP, tls=True),))
    session = Session(an_id(), spec, 0.0, ports=(Port(container, Protocol.TCP, host, tls=True),))
    return session.to(State.RUNNING, at=0.0, process=process, address="127.0.0.1")


@contextlib.asynccontextmanager
async def serving(
    path: Path, serve: Serve, files: CertificateFiles | None = None, limits: Limits | None = None
) -> AsyncIterator[Served]:
    files = files or issue(AUTHORITY, path / "pair")
    clock = FakeClock(time.time())
    notified = list[None]()
    tls = TlsPorts(
        files, clock, bind_address="127.0.0.1", notify=lambda: notified.append(None), limits=limits
    )
    await tls.look()
    game = Game(serve)
    session = running(game.port, free_port(), MYSELF)
    tls.open(session)
    tls.follow(session)
    try:
        yield Served(tls, session, game, files, clock, notified)
    finally:
        await tls.stop()
        await game.close()
        assert tls.connections == 0


async def echo(made: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(made, 65536):
        await loop.sock_sendall(made, data)


async def is_echoed(player: Player) -> None:
    await player.send(b"x")
    assert await player.exactly(1) == b"x"


async def _received(made: socket.socket) -> bytes:
    parts = []
    while data := await asyncio.get_running_loop().sock_recv(made, 65536):
        parts.append(data)
    return b"".join(parts)


# -- relayed connections --------------------------------------------------------------------------


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


async def test_tls_1_1_is_refused(tmp_path: Path) -> None:
    context = trusting(AUTHORITY)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with serving(tmp_path, echo) as served:
        with pytest.raises(OSError):  # noqa: PT011 - an alert, or the reset that comes before it
            async with served.player(context):
                pass
        assert served.game.connections == 0


@pytest.mark.parametrize("ends_tls", [True, False])
@pytest.mark.parametrize("version", BOTH, ids=lambda version: version.name)
async def test_player_receives_after_closing_its_side(
    tmp_path: Path, version: ssl.TLSVersion, *, ends_tls: bool
) -> None:
    async def answer_at_the_end(made: socket.socket) -> None:
        received = await _received(made)
        await asyncio.get_running_loop().sock_sendall(made, received)

    question = b"question" * 20_000
    context = trusting(AUTHORITY, version)
    async with serving(tmp_path, answer_at_the_end) as served, served.player(context) as player:
        assert player.tls.selected_alpn_protocol() is None
        await player.send(question)
        if ends_tls:
            await player.end()
        else:  # as many do
            player.socket.shutdown(socket.SHUT_WR)
        assert await player.receive_all() == question
        await served.all_gone()


@pytest.mark.parametrize("version", BOTH, ids=lambda version: version.name)
async def test_game_receives_after_its_close(tmp_path: Path, version: ssl.TLSVersion) -> None:
    received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def end_first(made: socket.socket) -> None:
        await asyncio.get_running_loop().sock_recv(made, 1)
        made.shutdown(socket.SHUT_WR)
        received.set_result(await _received(made))

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


# -- rejected connections -------------------------------------------------------------------------


async def test_player_with_early_data_sees_end_if_game_does_not_listen(tmp_path: Path) -> None:
    async with serving(tmp_path, echo) as served:
        await served.game.close()
        async with connection(served.port) as made:
            player = Player(made, trusting(AUTHORITY, ssl.TLSVersion.TLSv1_3), HOST)
            await player.shake_hands(b"hello")
            assert await player.receive_all() == b""
        await served.all_gone()


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
        assert not await _received(made)

    async with serving(tmp_path, receive_nothing) as served:
        ended = Process(os.getpid(), MYSELF.start_ticks - 1)
        served.tls.follow(served.session.with_changes(process=ended))
        async with served.player() as player:
            with contextlib.suppress(OSError):
                await player.send(b"secret")
                assert await player.receive_all() == b""
        await served.all_gone()


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
        before = _open_files()
        for _ in range(10):
            async with contextlib.AsyncExitStack() as many:
                for number in range(100):
                    made = await many.enter_async_context(connection(served.port))
                    if number % 3:
                        await asyncio.get_running_loop().sock_sendall(made, os.urandom(number))
        await served.all_gone()
        await until(lambda: _open_files() <= before)  # earlier tests may still close files


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the folder itself is one of them


# -- the certificate ------------------------------------------------------------------------------


def leaf(files: CertificateFiles) -> bytes:
    loaded = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    return loaded.public_bytes(Encoding.DER)


async def test_new_connections_use_renewed_certificate(tmp_path: Path) -> None:
    """Renews like certbot, which replaces one symlink after the other."""
    old, new = (issue(AUTHORITY, tmp_path / name) for name in ("old", "new"))
    links = [tmp_path / name for name in ("fullchain.pem", "privkey.pem")]
    for link in links:
        link.symlink_to(old.certificate.with_name(link.name))
    files = CertificateFiles(*links)
    async with serving(tmp_path, echo, files) as served, served.player() as player:
        assert player.certificate() == leaf(old)
        for link in links:
            beside = tmp_path / "beside"
            beside.symlink_to(new.certificate.with_name(link.name))
            beside.replace(link)
            await served.tls.look()
            if link == files.certificate:  # they do not match now
                assert "key values mismatch" in served.tls.warnings[0]
                async with served.player() as between:
                    assert between.certificate() == leaf(old)
        assert not served.tls.warnings
        async with served.player() as later:
            assert later.certificate() == leaf(new)
        await is_echoed(player)


@pytest.mark.parametrize(
    "harm",
    [
        lambda files: files.certificate.write_bytes(b"no certificate\n"),
        lambda files: files.certificate.unlink(),
        lambda files: files.key.write_bytes(b""),
        lambda files: issue(AUTHORITY, files.key.parent, life=timedelta(days=-1)),
    ],
    ids=["garbage", "gone", "no key", "old"],
)
async def test_keeps_last_pair_if_files_are_invalid(
    tmp_path: Path, harm: Callable[[CertificateFiles], object]
) -> None:
    async with serving(tmp_path, echo) as served:
        before = leaf(served.files)
        notified = len(served.notified)
        harm(served.files)
        await served.tls.look()
        await served.tls.look()
        [warning] = served.tls.warnings
        assert warning.startswith("cannot use the certificate for TLS ports, the last one stays")
        assert str(tmp_path / "pair") in warning
        assert len(served.notified) == notified + 1
        assert served.tls.available
        async with served.player() as player:
            assert player.certificate() == before


async def test_warns_before_certificate_expires(tmp_path: Path) -> None:
    async with serving(tmp_path, echo) as served:
        assert not served.tls.warnings
        served.clock.jump(50 * 86400)
        await served.tls.look()
        assert "the certificate for TLS ports ends on" in served.tls.warnings[0]
        served.tls.check(served.session.spec)
        served.clock.jump(20 * 86400)
        await served.tls.look()
        assert "the certificate for TLS ports ended on" in served.tls.warnings[0]
        assert not served.tls.available
        with pytest.raises(NoCertificateError):
            served.tls.check(served.session.spec)
        served.clock.jump(-73 * 86400)
        await served.tls.look()
        assert not served.tls.available
        assert "the certificate for TLS ports begins on" in served.tls.warnings[0]


# -- ports and sessions ---------------------------------------------------------------------------


async def test_port_in_use_fails_and_releases_the_rest(tmp_path: Path) -> None:
    async with serving(tmp_path, echo) as served:
        mine = free_port()
        theirs = socket.create_server(("127.0.0.1", 0))
        with theirs:
            taken: int = theirs.getsockname()[1]
            ports = tuple(Port(n, Protocol.TCP, n, tls=True) for n in (mine, taken))
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


async def test_connections_have_keepalive_and_no_delay(tmp_path: Path) -> None:
    async with serving(tmp_path, echo) as served, served.player() as player:
        await is_echoed(player)
        both = (socket.SOL_SOCKET, socket.SO_KEEPALIVE), (socket.IPPROTO_TCP, socket.TCP_NODELAY)
        found = []
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names of numbers
            with (
                contextlib.suppress(OSError, IndexError),  # not a TCP socket
                socket.socket(fileno=os.dup(int(name))) as held,
            ):
                to_game = held.getpeername()[1] == served.game.port
                if to_game or held.getsockname()[1] == served.port:
                    found.append([held.getsockopt(*option) for option in both])
        assert found == [[1, 1]] * 2, "one to the player, and one to the game"
