"""A relay before an agent, whose connections can be cut."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from controlplane.settings.model import Config
from tests.support.controlplane.system import System

RELAY = "relay.sock"


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Relay:
    """Relays bytes over connections that `connect` opens, with `delay` seconds each way."""

    def __init__(
        self, connect: Callable[[], Coroutine[Any, Any, Streams]], delay: float = 0.0
    ) -> None:
        self._connect = connect
        self._delay = delay
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
            there, onward = await self._connect()
        except OSError:  # no server there
            writer.close()
            return
        for source, sink in ((reader, onward), (there, writer)):
            self._writers.add(sink)
            carrier = asyncio.create_task(self._carry(source, sink), name="carrier")
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

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        later = partial(asyncio.get_running_loop().call_later, self._delay)
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                if self._delay:
                    later(sink.write, data)
                else:
                    sink.write(data)
                    await sink.drain()
        if self._delay:
            later(sink.close)
        else:
            sink.close()


@contextlib.asynccontextmanager
async def a_relay(path: Path, target: Path) -> AsyncIterator[Relay]:
    """Listen on a path until the context ends."""
    relay = Relay(partial(asyncio.open_unix_connection, target))
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
