"""Terminates TLS of one player's connection and relays plaintext in both directions.

Each direction buffers at most CHUNK_BYTES, so a slow reader slows the writer, and is closed
independently: asyncio's own TLS closes both at the end of one.
"""

import asyncio
import contextlib
import socket
import ssl

CHUNK_BYTES = 64 * 1024


class TlsStream:
    """TLS over a non-blocking socket; all failures are OSErrors."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = connection
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._sending = asyncio.Lock()
        self._ended = False
        self._received = b""  # Decrypted data that `receive` has not returned

    async def handshake(self) -> None:
        """Perform the TLS handshake."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._feed()
            except ssl.SSLError:
                await self._flush()  # sends the alert
                raise
            else:
                await self._flush()
                return

    async def receive(self) -> bytes:
        """Wait for data from the player; empty at the end of the stream."""
        while True:
            self._received += self._decrypted()
            if self._outgoing.pending:  # response to a key update
                await self._flush()
            if self._received or self._ended:
                data = self._received
                self._received = b""
                return data
            await self._feed()

    async def send(self, data: bytes) -> None:
        """Send, and return when the kernel has accepted the data."""
        self._tls.write(data)
        await self._flush()

    async def end(self) -> None:
        """Send the end of the stream to the player; data from the player is still received."""
        self._received += self._decrypted()  # unwrap fails if records are pending
        with contextlib.suppress(ssl.SSLWantReadError):  # the player has not closed its side
            self._tls.unwrap()
        await self._flush()
        self._socket.shutdown(socket.SHUT_WR)

    def _decrypted(self) -> bytes:
        records = []
        try:
            while record := self._tls.read(CHUNK_BYTES):
                records.append(record)
            self._ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._ended = True
        return b"".join(records)

    async def _feed(self) -> None:
        if data := await self._loop.sock_recv(self._socket, CHUNK_BYTES):
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def _flush(self) -> None:
        async with self._sending:
            while self._outgoing.pending:
                await self._loop.sock_sendall(self._socket, self._outgoing.read())


async def relay(player: TlsStream, game: socket.socket, half_closed: float) -> None:
    """Relay until both sides have closed; raises an exception group of OSErrors if one fails.

    `half_closed`: idle timeout once the game has closed its side.
    """
    loop = asyncio.get_running_loop()
    pieces = 0

    async def to_game() -> None:
        nonlocal pieces
        while data := await player.receive():
            pieces += 1
            await loop.sock_sendall(game, data)
            await asyncio.sleep(0)  # yield: neither call waits while there is more
        game.shutdown(socket.SHUT_WR)

    async with asyncio.TaskGroup() as directions:
        sending = directions.create_task(to_game(), name="tls-to-game")
        while data := await loop.sock_recv(game, CHUNK_BYTES):
            await player.send(data)
            await asyncio.sleep(0)
        await player.end()
        while not sending.done():
            before = pieces
            await asyncio.wait({sending}, timeout=half_closed)
            if pieces == before:
                sending.cancel()
