"""An application on an address: its edge, and its stop in stages."""

import ssl

from aiohttp import web

from controlplane.http.edge import Edge, Limits
from controlplane.http.gate import Gate

HTTP_STOP_TIMEOUT = 15.0
"""Requests under way may finish: a DELETE takes 12 s at most."""


class HttpServer:
    """Serves one application from `open` to `close`."""

    def __init__(self, app: web.Application, gate: Gate, limits: Limits) -> None:
        # A handler is cancelled when its caller hangs up: a follower's stream must end with it.
        # Work that must go on, such as a start, is a task of its own.
        self._runner = web.AppRunner(
            app, handler_cancellation=True, shutdown_timeout=HTTP_STOP_TIMEOUT
        )
        self._edge = Edge(gate, limits)

    async def prepare(self) -> None:
        """Have the application begin, before anybody can call.

        Raises:
            OSError: A file that it serves cannot be read.
        """
        await self._runner.setup()

    async def open(self, address: tuple[str, int], tls: ssl.SSLContext | None) -> str:
        """Listen, once it is prepared, and give the base address.

        Raises:
            OSError: The address cannot be listened on.
        """
        assert self._runner.server is not None, "set up"
        return await self._edge.open(self._runner.server, address, tls)

    async def close(self) -> None:
        """Take no more connections, and let requests under way finish. Idempotent."""
        self._edge.close()
        await self._runner.cleanup()
