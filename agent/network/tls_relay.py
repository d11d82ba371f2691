"""One player's connection: TLS is ended here, and plaintext passed on in both directions.

Each direction holds one piece of CHUNK_BYTES, so that a slow reader slows the writer, and ends by
itself. asyncio's own TLS takes the end of one direction for the end of both.
"""

import asyncio
import contextlib
import socket
import ssl

CHUNK_BYTES = 64 * 1024


class TlsStream:
    """The TLS of one connection, on a socket that does not block.

    Failures of the connection and of TLS are OSErrors.
    """

    def __init__(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._sending = asyncio.Lock()
        self._ended = False
        self._received = b""
        """Received data that has not been read."""

    async def handshake(self) -> None:
        """Shake hands."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._feed()
            except ssl.SSLError:
                await self._flush()  # an alert says why
                raise
            else:
                await self._flush()
                return

    async def receive(self) -> bytes:
        """Wait for what the player sends; nothing when that has ended."""
        while True:
            self._received += self._decrypted()
            if self._outgoing.pending:  # a change of keys is answered
                await self._flush()
            if self._received or self._ended:
                data, self._received = self._received, b""
                return data
            await self._feed()

    async def send(self, data: bytes) -> None:
        """Send, and return when the kernel has accepted the data."""
        self._tls.write(data)
        await self._flush()

    async def end(self) -> None:
        """Send the end of the stream to the player; data from the player is still received."""
        self._received += self._decrypted()  # an end that finds records is taken for a failure
        with contextlib.suppress(ssl.SSLWantReadError):  # the player has yet to end its side
            self._tls.unwrap()
        await self._flush()
        self._socket.shutdown(socket.SHUT_WR)

    def _decrypted(self) -> bytes:
        """What of the bytes that came makes whole records."""
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


class Relay:
    """Passes on between a player and a game until both have ended, or one is gone.

    After the game's end the player may be idle for at most `half_closed` seconds.
    """

    def __init__(self, player: TlsStream, game: socket.socket, half_closed: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._player = player
        self._game = game
        self._half_closed = half_closed
        self._pieces = 0
        """Received from the player."""

    async def run(self) -> None:
        """Pass on. Raises OSErrors as a group when a side is gone."""
        async with asyncio.TaskGroup() as directions:
            to_game = directions.create_task(self._to_game(), name="tls-to-game")
            await self._to_player()
            while not to_game.done():
                before = self._pieces
                await asyncio.wait({to_game}, timeout=self._half_closed)
                if self._pieces == before:
                    to_game.cancel()

    async def _to_game(self) -> None:
        while data := await self._player.receive():
            self._pieces += 1
            await self._loop.sock_sendall(self._game, data)
            await asyncio.sleep(0)  # yield: neither call waits while there is more
        self._game.shutdown(socket.SHUT_WR)

    async def _to_player(self) -> None:
        while data := await self._loop.sock_recv(self._game, CHUNK_BYTES):
            await self._player.send(data)
            await asyncio.sleep(0)
        await self._player.end()
