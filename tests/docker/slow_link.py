"""A relay with latency, which counts its connections."""

import asyncio
from functools import partial

from tests.flow.relay import Relay
from tests.support.serving_thread import ServingThread


class SlowLink(ServingThread):
    """Relays TCP from `address` to `host:port` with `delay` seconds each way."""

    def __init__(self, host: str, port: int, delay: float) -> None:
        super().__init__("slow-link")
        self._relay = Relay(partial(asyncio.open_connection, host, port), delay)
        self.address = ""

    @property
    def connections(self) -> int:
        return self._relay.connections

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._relay.take, "127.0.0.1", 0)
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname())

    async def _stop(self) -> None:
        self._server.close()
        await self._relay.close()
