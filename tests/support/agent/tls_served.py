"""TLS ports of a session on loopback; its game is a socket of the test."""

import asyncio
import contextlib
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from agent.domain.sessions.session import Port, Process, Session
from agent.kernel.processes import live_process
from agent.network.tls_certificate import CertificateFiles
from agent.network.tls_gate import Limits
from agent.network.tls_ports import TlsPorts
from tests.support.agent.hosts import until
from tests.support.agent.samples import a_spec, an_id
from tests.support.agent.tls_players import Player, issue, trusting
from tests.support.certificates import Signer
from tests.support.fake_clock import FakeClock
from tests.support.harness import free_port
from tiltyard.contract import PortRequest, Protocol, State

AUTHORITY = Signer.new()
MYSELF = live_process(os.getpid()) or Process(0, 0)
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


async def received_all(made: socket.socket) -> bytes:
    parts = []
    while data := await asyncio.get_running_loop().sock_recv(made, 65536):
        parts.append(data)
    return b"".join(parts)
