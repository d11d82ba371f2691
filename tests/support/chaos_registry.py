"""A proxy in front of a registry that injects faults and counts requests."""

import asyncio
import re
import threading
from collections import Counter
from typing import Any

import aiohttp
from aiohttp import web

from tests.support.pushed_image import PushedImage, push_image
from tests.support.registry_faults import Exchange, Fault, passes
from tests.support.serving_thread import ServingThread

MANIFESTS = "/manifests/"
BLOBS = "/blobs/"

_PATIENCE = 30.0  # Maximum seconds that a test waits for a condition


class ChaosRegistry(ServingThread):
    """A proxy of the registry `upstream` (`host:port`) at `address`, with faults on demand.

    Serves GET and HEAD, as pulls need, on one port of all `hosts`, the first of which is in
    `address`. Runs in its own thread; the methods are thread-safe.
    """

    def __init__(self, upstream: str, *hosts: str) -> None:
        super().__init__("chaos-registry")
        self.requests: Counter[str] = Counter()
        """GET requests by path, including those that met a fault."""
        self.address = ""
        self._upstream = upstream
        self._hosts = hosts or ("127.0.0.1",)
        self._rules: list[tuple[str, Fault]] = []
        self._changed = threading.Condition()
        self._healed = asyncio.Event()

    def push(self, repository: str, tag: str = "v1", **more: Any) -> PushedImage:
        """Push an image to the registry; return it as this proxy has it."""
        return push_image(self._upstream, repository, tag, **more).at(self.address)

    def disturb(self, pattern: str, fault: Fault) -> None:
        """Inject a fault into the requests whose path contains this pattern."""
        with self._changed:
            self._rules.append((pattern, fault))

    def heal(self) -> None:
        """Remove all faults, and end the requests that hang."""
        with self._changed:
            self._rules.clear()
        self._run(self._let_go())

    def asked(self, pattern: str) -> int:
        """Count the GET requests whose path contains this pattern."""
        with self._changed:  # The server's thread adds paths.
            return sum(n for path, n in self.requests.items() if re.search(pattern, path))

    def wait_until_asked(self, pattern: str, times: int = 1) -> None:
        """Wait for a number of requests; raise TimeoutError if they do not come."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.asked(pattern) >= times, _PATIENCE):
                raise TimeoutError(f"no {times} requests for {pattern}: {dict(self.requests)}")

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        fault = self._count(request)
        healed = self._healed
        try:
            async with self._session.request(
                request.method,
                f"http://{self._upstream}{request.path_qs}",
                headers=request.headers,
            ) as answer:
                return await fault(Exchange(request, answer, healed))
        except aiohttp.ClientConnectionResetError:  # the client has disconnected
            return web.Response()

    def _count(self, request: web.Request) -> Fault:
        path = request.path
        with self._changed:
            self.requests[path] += request.method == "GET"
            self._changed.notify_all()
            faults = (fault for pattern, fault in self._rules if re.search(pattern, path))
            return next(faults, passes)

    async def _let_go(self) -> None:
        self._healed.set()
        self._healed = asyncio.Event()

    async def _start(self) -> None:
        self._session = aiohttp.ClientSession(auto_decompress=False)
        app = web.Application()
        app.router.add_get("/{path:.*}", self._serve)
        # It ends a handler as soon as the engine disconnects.
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1
        )
        await self._runner.setup()
        port = 0
        for host in self._hosts:
            await web.TCPSite(self._runner, host, port).start()
            port = self._runner.addresses[0][1]
        self.address = f"{self._hosts[0]}:{port}"

    async def _stop(self) -> None:
        await self._runner.cleanup()
        await self._session.close()
