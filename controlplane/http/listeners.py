"""HTTP listeners: the API, the enrolment of hosts, the metrics."""

import resource
import ssl

from controlplane.admission.byte_room import BODIES_BYTES, RESPONSES_BYTES, ByteRoom
from controlplane.http.application import Application
from controlplane.http.edge import Edge
from controlplane.http.gate import Bounds, Gate
from controlplane.http.limits import Limits
from controlplane.metrics.http import HttpMetrics

STOP_TIMEOUT = 15.0
"""Seconds that requests in progress may take to finish; a DELETE takes at most 12 s."""


class Listeners:
    """Owns the servers; closes them in reverse order."""

    def __init__(self, limits: Limits, metrics: HttpMetrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self.bodies = self._room("request", BODIES_BYTES)
        self._responses = self._room("response", RESPONSES_BYTES)
        self._opened: list[Edge] = []

    def _room(self, kind: str, total: int) -> ByteRoom:
        room = ByteRoom(total, self._metrics.held_refusals.labels(kind))
        self._metrics.held_bytes.labels(kind).set_function(lambda: room.taken)
        return room

    async def open(
        self,
        setting: str,
        app: Application,
        bounds: Bounds,
        *,
        address: tuple[str, int],
        tls: ssl.SSLContext | None = None,
    ) -> str:
        """Serve an application at the address of a setting, and return the base URL.

        Raises:
            OSError: Cannot listen on the address; the text names the setting. Or the application
                cannot be started.
        """
        gate = Gate(bounds, self._metrics, setting.removesuffix("_listen"))
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each connection is one
        edge = Edge(app, gate, self._limits, self._responses)
        self._opened.append(edge)
        await edge.start()
        try:
            return await edge.open(address, tls)
        except OSError as error:
            host, port = address
            text = f"{setting}: cannot listen on port {port} of {host or 'any address'}"
            text += f": {error.strerror or error}"
            raise OSError(text) from error

    async def close(self) -> None:
        """Stop accepting connections, and let requests in progress finish. Idempotent."""
        while self._opened:
            await self._opened.pop().close(STOP_TIMEOUT)
