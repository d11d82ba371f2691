"""TLS clients of a port, with behaviour that asyncio's TLS does not offer."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Self

from agent.network.tls_certificate import CertificateFiles
from tests.support import certificates
from tests.support.certificates import SERVES, Signer

HOST = "host.example"
BOTH = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


def issue(
    authority: Signer, folder: Path, life: timedelta = timedelta(days=60)
) -> CertificateFiles:
    """A certificate in its own files."""
    party = authority.sign(SERVES, hosts=[HOST], life=life)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fullchain.pem").write_bytes(party.certificate)
    (folder / "privkey.pem").write_bytes(party.key)
    return CertificateFiles(folder / "fullchain.pem", folder / "privkey.pem")


def trusting(authority: Signer, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = certificates.trusting(authority.certificate)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


class Player:
    """One end of a connection; each direction is closed separately."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self.socket = connection
        self._incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self.outgoing, server_hostname=name)

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(cls, port: int, context: ssl.SSLContext) -> AsyncIterator[Self]:
        async with connection(port) as made:
            player = cls(made, context, HOST)
            await player.shake_hands()
            yield player

    async def shake_hands(self, first: bytes = b"") -> None:
        """Shake hands; `first` is sent together with the last message of the handshake."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.flush()
                await self._feed()
            else:
                self.tls.write(first)
                await self.flush()
                return

    async def send(self, data: bytes) -> None:
        self.tls.write(data)
        await self.flush()

    async def flush(self, data: bytes | None = None) -> None:
        data = self.outgoing.read() if data is None else data
        await self._loop.sock_sendall(self.socket, data)

    async def end(self) -> None:
        """Close the sending direction, and keep reading."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        await self.flush()

    async def receive(self) -> bytes:
        """Return the next data; empty at the end of the stream."""
        while True:
            try:
                return self.tls.read(65536)
            except ssl.SSLWantReadError:
                await self._feed()
            except ssl.SSLZeroReturnError:
                return b""

    async def receive_all(self) -> bytes:
        parts = []
        while part := await self.receive():
            parts.append(part)
        return b"".join(parts)

    async def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = await self.receive()
            assert part, f"it ended after {data!r}"
            data += part
        return data

    def certificate(self) -> bytes:
        found = self.tls.getpeercert(binary_form=True)
        assert found is not None
        return found

    async def _feed(self) -> None:
        if data := await self._loop.sock_recv(self.socket, 65536):
            self._incoming.write(data)
        else:
            self._incoming.write_eof()


@contextlib.asynccontextmanager
async def connection(port: int) -> AsyncIterator[socket.socket]:
    with socket.socket() as made:
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
        yield made
