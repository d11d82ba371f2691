"""An endpoint that answers with any bytes, and attempts to reach it."""

import asyncio
import ipaddress
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from controlplane.domain.addresses import Network
from controlplane.domain.webhooks.attempts import Answer
from controlplane.webhooks.sender import Sender
from tests.support.certificates import Party
from tiltyard.runtime.clock import Clock, SystemClock

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
LOOPBACK: tuple[Network, ...] = (ipaddress.ip_network("127.0.0.0/8"),)
BODY = b'{"type": "webhook.test"}'
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Endpoint:
    """A server that answers with bytes, after it has read the request."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.port = 0
        self.requests: list[bytes] = []
        self.connections = 0
        self.reached = asyncio.Event()
        self.left = asyncio.Event()  # Set once a connection has ended

    async def start(self, serve: Serve, tls: ssl.SSLContext | None = None) -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            try:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head + await reader.readexactly(len(BODY)))
                self.reached.set()
                await serve(reader, writer)
                await reader.read()
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                self.left.set()
                writer.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
        self._stack.push_async_callback(server.wait_closed)
        self._stack.callback(server.close)
        self.port = server.sockets[0].getsockname()[1]

    async def answer(self, *parts: bytes, tls: ssl.SSLContext | None = None) -> None:
        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for part in parts:
                writer.write(part)
                await writer.drain()

        await self.start(serve, tls)


async def send(
    stack: AsyncExitStack,
    url: str,
    *,
    networks: tuple[Network, ...] = LOOPBACK,
    tls: ssl.SSLContext | bool = True,
    clock: Clock | None = None,
) -> Answer:
    sender = Sender(clock or SystemClock(), networks=networks, tls=tls)
    stack.callback(sender.close)
    return await sender.send("alice", url, {"webhook-id": "m"}, BODY)


def address_of(endpoint: Endpoint, path: str = "/hook") -> str:
    return f"http://127.0.0.1:{endpoint.port}{path}"


def serving(party: Party, folder: Path) -> ssl.SSLContext:
    """Return the TLS context of an endpoint with a certificate."""
    path = folder / "party.pem"
    path.write_bytes(party.key + party.certificate)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path)
    return context
