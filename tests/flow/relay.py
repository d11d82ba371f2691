"""A relay between unix sockets that can go dumb: nothing comes through, and nothing is closed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path


class Relay:
    """Carries bytes to a socket."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._carriers: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections = 0

    def go_dumb(self) -> None:
        """Carry nothing more on the connections of now; new ones are carried."""
        for carrier in self._carriers:
            carrier.cancel()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            there, onward = await asyncio.open_unix_connection(self._target)
        except OSError:  # nobody serves there
            writer.close()
            return
        for source, sink in ((reader, onward), (there, writer)):
            self._writers.add(sink)
            carrier = asyncio.create_task(_carry(source, sink), name="carrier")
            self._carriers.add(carrier)
            carrier.add_done_callback(self._carriers.discard)

    async def close(self) -> None:
        self.go_dumb()
        await asyncio.gather(*self._carriers, return_exceptions=True)
        for writer in self._writers:
            writer.close()


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)
        await sink.drain()
    sink.close()


@contextlib.asynccontextmanager
async def a_relay(path: Path, target: Path) -> AsyncIterator[Relay]:
    """Listen on a path until the context is left."""
    relay = Relay(target)
    server = await asyncio.start_unix_server(relay.take, path)
    try:
        yield relay
    finally:
        server.close()
        await relay.close()
