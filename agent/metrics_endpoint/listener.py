"""Serves the agent's metrics on a port of its own: /metrics and /healthz.

The state is read in one step of the event loop; text is made of it on a thread. A port that cannot
be bound is retried and does not affect sessions. The port has no authentication, so a connection
has a bounded time and a new one replaces the oldest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from aiohttp import web
from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.settings import host_and_port

log = get_logger(__name__)

RETRY_SECONDS = 1.0
"""To look again for a port that another process still has."""
MAX_CONNECTIONS = 32
"""Prometheus has one or two; each may pin 16 KiB of a request's head."""
CONNECTION_SECONDS = 90.0
"""For the next request of a connection to come and its answer to be read; longer than the usual
minute between two scrapes. Tests take less."""
MAX_HEADERS = 32
STOP_SECONDS = 1.0


class MetricsListener:
    """The listener of `metrics_listen`."""

    def __init__(
        self,
        address: str,
        registry: CollectorRegistry,
        clock: Clock,
        *,
        is_ready: Callable[[], bool],
        connection_seconds: float = CONNECTION_SECONDS,
    ) -> None:
        """Serve the registry; `is_ready` is the result of /healthz."""
        self._address = address
        self._host, self._port = host_and_port(address)
        self._registry = registry
        self._clock = clock
        self._is_ready = is_ready
        self.connection_seconds = connection_seconds
        self._connections: dict[_Connection, None] = {}
        self._thread = ThreadPoolExecutor(1, "metrics")
        self._turn = asyncio.Lock()
        self._process: CollectorRegistry | None = None
        self.serving = asyncio.Event()
        """Set once the port answers."""

    async def run(self) -> None:
        """Serve until cancelled; wait where the port is taken."""
        app = web.Application()
        app.add_routes([web.get("/metrics", self._metrics), web.get("/healthz", self._healthz)])
        runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=STOP_SECONDS
        )
        await runner.setup()
        assert runner.server is not None, "set up"
        handler = runner.server
        server: asyncio.Server | None = None
        try:
            server = await self._opened(lambda: _Connection(handler, self))
            log.info("serving metrics", address=self._address)
            self.serving.set()
            await asyncio.Event().wait()
        finally:
            if server is not None:
                server.close()
            for connection in [*self._connections]:
                connection.abort()
            await runner.cleanup()
            self._thread.shutdown(wait=False, cancel_futures=True)

    def came(self, connection: _Connection) -> None:
        """Admit a connection, in the place of the oldest where there are too many."""
        if len(self._connections) >= MAX_CONNECTIONS:
            next(iter(self._connections)).abort()
        self._connections[connection] = None

    def went(self, connection: _Connection) -> None:
        """Count a connection no more."""
        self._connections.pop(connection, None)

    async def _opened(self, connection: Callable[[], _Connection]) -> asyncio.Server:
        told = ""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await loop.create_server(connection, self._host, self._port)
            except (OSError, UnicodeError) as error:  # the latter of a name that cannot be one
                if str(error) != told:
                    told = str(error)
                    log.warning("not serving metrics yet", address=self._address, error=told)
            await self._clock.sleep(RETRY_SECONDS)

    async def _metrics(self, request: web.Request) -> web.Response:
        try:
            encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        except (TypeError, ValueError):  # what it makes of a version that is none
            encode, content_type = choose_encoder("")
        async with self._turn:  # however many ask, one text is made at a time
            families = list(self._registry.collect())
            text = await asyncio.get_running_loop().run_in_executor(
                self._thread, self._encoded, encode, families
            )
        return web.Response(body=text, headers={"Content-Type": content_type})

    async def _healthz(self, _request: web.Request) -> web.Response:
        ready = self._is_ready()
        text = "ok\n" if ready else "records are not reconciled with the engine yet\n"
        return web.Response(status=200 if ready else 503, text=text)

    def _encoded(self, encode: Callable[[Collector], bytes], families: list[Metric]) -> bytes:
        """The text of these and of the process. Blocks: /proc is read."""
        if self._process is None:
            self._process = CollectorRegistry()
            for collector in (ProcessCollector, PlatformCollector, GCCollector):
                collector(registry=self._process)
        return encode(_Read([*families, *self._process.collect()]))


class _Read(Collector):
    """What was read already."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


class _Connection(web.RequestHandler):
    """A connection of aiohttp with a single deadline (slow, idle and unread ones)."""

    def __init__(self, server: web.Server, listener: MetricsListener) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # what web.AppRunner is given to have none
            max_headers=MAX_HEADERS,
            auto_decompress=False,
        )
        self._listener = listener
        self._wire: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def abort(self) -> None:
        """End it at once."""
        self._listener.went(self)
        if self._wire is not None:
            self._wire.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it, and give it its time."""
        self._wire = cast("asyncio.Transport", transport)
        self._listener.came(self)
        self._give_time()
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count it no more."""
        self._listener.went(self)
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Give the next request its time once this one is answered."""
        sent = await super().finish_response(request, resp, start_time)
        if self.transport is not None:
            self._give_time()
        return sent

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer without the words that were sent, and log no stranger's mistakes."""
        if status != 400:
            return super().handle_error(request, status, exc, message)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun")
        answer = web.Response(status=400, text="the request is not well-formed HTTP/1.1\n")
        answer.force_close()
        return answer

    def _give_time(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        seconds = self._listener.connection_seconds
        self._deadline = self._loop.call_later(seconds, self.abort)
