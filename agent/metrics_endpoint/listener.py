"""Serves /metrics and /healthz on a separate port, one response per connection."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from types import SimpleNamespace
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import Metric

from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.settings import host_and_port

log = get_logger(__name__)

RETRY_SECONDS = 1.0  # Between attempts to bind a port in use
MAX_CONNECTIONS = 32
"""Prometheus needs one or two; a new connection over the limit replaces the oldest."""
CONNECTION_SECONDS = 30.0  # Timeout of a request and its response; Prometheus waits 10 s
MAX_HEAD_BYTES = 16 * 1024
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(eq=False)
class MetricsListener:
    """The listener of `metrics_listen`."""

    address: str
    registry: CollectorRegistry
    clock: Clock
    _: KW_ONLY
    is_ready: Callable[[], bool]
    """Decides the response of /healthz."""
    serving: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set once the port is open."""
    _connections: dict[asyncio.Task[Any], None] = field(default_factory=dict, init=False)
    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, "metrics"), init=False
    )
    _scrape: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _process: CollectorRegistry = field(default_factory=CollectorRegistry, init=False)

    def __post_init__(self) -> None:
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._process)

    async def run(self) -> None:
        """Serve until cancelled; wait while the port is in use."""
        server = await self._open()
        log.info("serving metrics", address=self.address)
        self.serving.set()
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            for connection in self._connections:
                connection.cancel()
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _open(self) -> asyncio.Server:
        host, port = host_and_port(self.address)
        logged = ""
        while True:
            try:
                return await asyncio.start_server(self._serve, host, port, limit=MAX_HEAD_BYTES)
            except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
                if str(error) != logged:
                    logged = str(error)
                    log.warning("not serving metrics yet", address=self.address, error=logged)
            await self.clock.sleep(RETRY_SECONDS)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio makes one for each connection"
        if len(self._connections) >= MAX_CONNECTIONS:
            oldest = next(iter(self._connections))
            del self._connections[oldest]
            oldest.cancel()
        self._connections[task] = None
        try:
            async with asyncio.timeout(CONNECTION_SECONDS):
                status, text = await self._answer(reader)
                head = f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\n"
                head += f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n"
                writer.write(head.encode() + text)
                writer.close()
                await writer.wait_closed()
        except (OSError, EOFError):  # TimeoutError is one
            pass
        finally:
            self._connections.pop(task, None)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[str, bytes]:
        try:
            line, _, _ = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
            method, path, _ = line.decode("ascii").split(" ")
        except (ValueError, asyncio.LimitOverrunError):
            return "400 Bad Request", b"the request is not well-formed HTTP/1.1\n"
        if method != "GET":
            return "405 Method Not Allowed", b""
        if path == "/metrics":
            return "200 OK", await self._metrics()
        if path != "/healthz":
            return "404 Not Found", b""
        if self.is_ready():
            return "200 OK", b"ok\n"
        return "503 Service Unavailable", b"records are not reconciled with the engine yet\n"

    async def _metrics(self) -> bytes:
        """Collect in one step of the event loop; format the text on a thread."""
        async with self._scrape:
            families = list(self.registry.collect())
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._text, families)

    def _text(self, families: Sequence[Metric]) -> bytes:
        """Format these families and the process metrics. Blocks: reads /proc."""
        read: Any = SimpleNamespace(collect=lambda: [*families, *self._process.collect()])
        return generate_latest(read)
