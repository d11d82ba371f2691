"""Where the program listens: the API, the enrolment of hosts, the metrics."""

import resource
import ssl

from aiohttp import web

from controlplane.http.edge import Edge, Limits
from controlplane.http.gate import Bounds, Gate
from controlplane.metrics.http import HttpMetrics

STOP_TIMEOUT = 15.0
"""Requests under way may finish: a DELETE takes 12 s at most."""


class Listeners:
    """Owns the servers: opened one after the other, closed in reverse."""

    def __init__(self, limits: Limits, metrics: HttpMetrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self._opened: list[tuple[Edge, web.AppRunner]] = []

    async def open(
        self,
        setting: str,
        app: web.Application,
        bounds: Bounds,
        address: tuple[str, int],
        tls: ssl.SSLContext | None = None,
    ) -> str:
        """Serve an application where a setting says, and give the base address.

        Raises:
            OSError: The address cannot be listened on; its text names the setting.
        """
        gate = Gate(bounds, self._metrics.listener(setting.removesuffix("_listen")))
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each connection is one
        # A handler is cancelled when its caller hangs up: a follower's stream must end with it.
        # Work that must go on, such as a start, is a task of its own.
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=STOP_TIMEOUT)
        edge = Edge(gate, self._limits)
        self._opened.append((edge, runner))
        await runner.setup()
        assert runner.server is not None, "set up"
        try:
            return await edge.open(runner.server, address, tls)
        except OSError as error:
            host, port = address
            text = f"{setting}: cannot listen on port {port} of {host or 'any address'}"
            text += f": {error.strerror or error}"
            raise OSError(text) from error

    async def close(self) -> None:
        """Take no more connections, and let requests under way finish. Idempotent."""
        while self._opened:
            edge, runner = self._opened.pop()
            edge.close()
            await runner.cleanup()
