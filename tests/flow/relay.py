"""A relay before the socket of an agent, whose connections can be cut."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from controlplane.settings.model import Config
from tests.support.controlplane.system import System

RELAY = "relay.sock"


class Relay:
    """Relays bytes to a socket."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self.carriers: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections = 0

    def drop_data(self) -> None:
        """Drop all data of current connections; new ones are relayed."""
        for carrier in self.carriers:
            carrier.cancel()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            there, onward = await asyncio.open_unix_connection(self._target)
        except OSError:  # no server there
            writer.close()
            return
        for source, sink in ((reader, onward), (there, writer)):
            self._writers.add(sink)
            carrier = asyncio.create_task(_carry(source, sink), name="carrier")
            self.carriers.add(carrier)
            carrier.add_done_callback(self.carriers.discard)

    def reset(self) -> None:
        """Close current connections at once; new ones are relayed."""
        for writer in self._writers:
            writer.transport.abort()

    async def close(self) -> None:
        self.drop_data()
        await asyncio.gather(*self.carriers, return_exceptions=True)
        for writer in self._writers:
            writer.close()


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)
        await sink.drain()
    sink.close()


@contextlib.asynccontextmanager
async def a_relay(path: Path, target: Path) -> AsyncIterator[Relay]:
    """Listen on a path until the context ends."""
    relay = Relay(target)
    server = await asyncio.start_unix_server(relay.take, path)
    try:
        yield relay
    finally:
        server.close()
        await relay.close()


class Relayed(System):
    """A control plane that reaches its only agent through the relay in its folder."""

    @property
    def config(self) -> Config:
        config = super().config
        [agent] = config.agents
        relayed = agent.model_copy(update={"address": f"unix:{self.folder / RELAY}"})
        return config.model_copy(update={"agents": (relayed,)})
