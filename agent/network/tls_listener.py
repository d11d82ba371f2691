"""One TLS port of a session: its listening socket and its connections."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from agent.domain.errors import PortTakenError
from agent.domain.sessions.session import Process
from agent.network.tls_certificate import HostCertificate
from agent.network.tls_gate import Gate, Limits
from agent.network.tls_relay import TlsStream, relay
from tiltyard.contract import Protocol
from tiltyard.runtime.logging.events import get_logger, task_context
from tiltyard.runtime.tasks import TaskOwner, contained

log = get_logger(__name__)

BACKLOG = 1024
ACCEPTED_AT_ONCE = 16  # Connections accepted before the event loop runs other tasks
PAUSE_SECONDS = 1.0  # Pause of a port when the process or the kernel is out of open files
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 20),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)
"""Connections may be idle for hours; a vanished peer is detected after two minutes."""
_UNSENT_BYTES = 128 * 1024
"""Send buffer in the kernel for a slow player; the default is up to 4 MiB."""
_NO_FILES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@dataclass(frozen=True, slots=True)
class Destination:
    """Where plaintext goes: an address that belongs to `process` while it lives."""

    address: str
    port: int
    process: Process


@dataclass(frozen=True, slots=True)
class Shared:
    """State that all TLS ports of a host share."""

    gate: Gate
    limits: Limits
    certificate: HostCertificate
    lives: Callable[[Process], Awaitable[bool]]
    connections: TaskOwner[None] = field(default_factory=TaskOwner)
    handshakes: dict[socket.socket, asyncio.Task[None]] = field(default_factory=dict)
    """Handshakes in progress, oldest first."""


class TlsListener:
    """Serves one port until closed; without a destination, new connections are closed."""

    def __init__(self, address: str, port: int, shared: Shared) -> None:
        """Listen on a port; raises PortTakenError if it cannot be bound."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            # Connections of an earlier agent in TIME_WAIT do not block the port.
            self._socket = socket.create_server((address, port), family=family, backlog=BACKLOG)
        except OSError as error:
            log.warning("cannot listen", address=address, port=port, error=error.strerror)
            raise PortTakenError(Protocol.TCP.value, port) from error
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._port = port
        self._shared = shared
        self._resume: asyncio.TimerHandle | None = None
        self._connections: dict[socket.socket, asyncio.Task[None]] = {}
        self.destination: Destination | None = None
        # Its connections belong to the session, not to the caller that started it.
        task_context("session").run(self._loop.add_reader, self._socket, self._accept)

    def close(self) -> None:
        """Stop accepting. Open connections have `linger` seconds to deliver data."""
        self.destination = None
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self._loop.call_later(self._shared.limits.linger, self._cancel)

    def _cancel(self) -> None:
        for task in self._connections.values():
            task.cancel()

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, (address, *_) = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _NO_FILES:
                    log.warning("TLS port paused", port=self._port, error=error.strerror)
                    self._loop.remove_reader(self._socket)
                    self._resume = self._loop.call_later(
                        PAUSE_SECONDS, self._loop.add_reader, self._socket, self._accept
                    )
                    return
                continue  # the client has already gone
            with contained("cannot serve a connection: internal error", port=self._port):
                self._admit(connection, address)
                continue
            connection.close()

    def _admit(self, connection: socket.socket, address: str) -> None:
        shared = self._shared
        pair = self._shared.certificate.pair
        refusal = "" if self.destination and pair else "no route to the game"
        refusal = refusal or shared.gate.refusal(self._port, address)
        if refusal or pair is None:
            log.debug("connection refused", port=self._port, address=address, reason=refusal)
            connection.close()
            return
        work = self._serve(connection, pair.context)
        self._connections[connection] = task = shared.connections.start(work, f"tls-{self._port}")
        task.add_done_callback(lambda _: self._release(connection, address))
        if len(shared.handshakes) >= shared.limits.handshakes:
            shared.handshakes.pop(next(iter(shared.handshakes))).cancel()
        shared.handshakes[connection] = task

    def _release(self, connection: socket.socket, address: str) -> None:
        connection.close()
        del self._connections[connection]
        self._shared.handshakes.pop(connection, None)
        self._shared.gate.release(self._port, address)

    async def _serve(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        limits = self._shared.limits
        try:
            _prepare(connection)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
            unread = round(limits.unread * 1000)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unread)
            player = TlsStream(connection, context)
            async with asyncio.timeout(limits.handshake):
                await player.handshake()
            self._shared.handshakes.pop(connection, None)
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as game:
                if await self._connect(game):
                    await relay(player, game, limits.half_closed)
                    return
            async with asyncio.timeout(limits.dial):
                await player.end()
        except* OSError as broken:  # includes timeouts and TLS errors
            log.debug("connection broke", port=self._port, error=str(broken.exceptions[0]))

    async def _connect(self, game: socket.socket) -> bool:
        """Connect to the game; False if it does not listen or its process has ended.

        Addresses are reused, so the process must be alive after the connection was made.
        """
        destination = self.destination
        if destination is None:
            return False
        try:
            _prepare(game)
            async with asyncio.timeout(self._shared.limits.dial):
                await self._loop.sock_connect(game, (destination.address, destination.port))
                return await self._shared.lives(destination.process)
        except OSError as error:
            log.debug("the game does not listen", port=self._port, error=str(error))
            return False


def _prepare(connection: socket.socket) -> None:
    connection.setblocking(False)
    for level, option, value in _KEEPALIVE:
        connection.setsockopt(level, option, value)
