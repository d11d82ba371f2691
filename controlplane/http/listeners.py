"""Where the program listens: the API, the enrolment of hosts, the metrics."""

import ssl

from aiohttp import web

from controlplane.http.edge import Limits
from controlplane.http.gate import Bounds, Gate, allow_files
from controlplane.http.serving import HttpServer
from controlplane.metrics.http import HttpMetrics


class Listeners:
    """Owns the servers: opened one after the other, closed in reverse."""

    def __init__(self, limits: Limits, metrics: HttpMetrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self._servers: list[HttpServer] = []
        self._others = 0  # connections that listeners opened before the API's may have

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
        if setting == "api_listen":
            allow_files(bounds.total + self._others)
        else:
            self._others += bounds.total
        server = HttpServer(app, gate, self._limits)
        self._servers.append(server)
        await server.prepare()
        try:
            return await server.open(address, tls)
        except OSError as error:
            host, port = address
            text = f"{setting}: cannot listen on port {port} of {host or 'any address'}"
            text += f": {error.strerror or error}"
            raise OSError(text) from error

    async def close(self) -> None:
        """Take no more connections, and let requests under way finish. Idempotent."""
        while self._servers:
            await self._servers.pop().close()
