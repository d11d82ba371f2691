"""A proxy in front of a registry that fails as registries and their networks do, and counts."""

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from tests.support.registry_faults import Exchange, Fault, passes
from tests.support.serving_thread import ServingThread

MANIFESTS = "/manifests/"
BLOBS = "/blobs/"

_PATIENCE = 30.0
"""Seconds in which what a test waits for must have come about."""


@dataclass
class _Rule:
    pattern: re.Pattern[str]
    fault: Fault
    times: float


class ChaosRegistry(ServingThread):
    """The registry at `upstream` (`host:port`) once more, at `address`, with faults on demand.

    Serves on one port of all `hosts`, the first of which is in `address`, by a thread of its own;
    may be asked from any other. Only what a pull asks for goes through: GET and HEAD.
    """

    def __init__(self, upstream: str, *hosts: str) -> None:
        super().__init__("chaos-registry")
        self.requests: Counter[str] = Counter()
        """GET requests by path, those that a fault met included."""
        self.most_blobs_at_once = 0
        self.address = ""
        self._upstream = upstream
        self._hosts = hosts or ("127.0.0.1",)
        self._rules: list[_Rule] = []
        self._under_way: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._healed = asyncio.Event()

    def disturb(self, pattern: str, fault: Fault, times: float = float("inf")) -> None:
        """Meet the next `times` requests whose path holds this pattern with a fault."""
        with self._changed:
            self._rules.append(_Rule(re.compile(pattern), fault, times))

    def heal(self) -> None:
        """Forget all faults, and hang up on those who wait in vain."""
        with self._changed:
            self._rules.clear()
        self._run(self._let_go())

    def asked(self, pattern: str) -> int:
        """How many GET requests had a path that holds this pattern."""
        return _sum(self.requests, pattern)

    def wait_until_asked(self, pattern: str, times: int = 1) -> None:
        """Wait until that many requests came; TimeoutError when they do not."""
        self._wait(lambda: self.asked(pattern) >= times, f"{times} requests for {pattern}")

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(holds, _PATIENCE):
                raise TimeoutError(f"waited in vain for {what}; asked: {dict(self.requests)}")

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        fault, healed = self._count(request), self._healed
        try:
            async with self._session.request(
                request.method,
                f"http://{self._upstream}{request.path_qs}",
                headers=request.headers,
            ) as answer:
                return await fault(Exchange(request, answer, healed))
        except aiohttp.ClientConnectionResetError:  # the client has disconnected
            return web.Response()
        finally:
            with self._changed:
                self._under_way[request.path] -= 1
                self._changed.notify_all()

    def _count(self, request: web.Request) -> Fault:
        path = request.path
        with self._changed:
            self.requests[path] += request.method == "GET"
            self._under_way[path] += 1
            self.most_blobs_at_once = max(self.most_blobs_at_once, _sum(self._under_way, BLOBS))
            self._changed.notify_all()
            for rule in self._rules:
                if rule.times > 0 and rule.pattern.search(path):
                    rule.times -= 1
                    return rule.fault
        return passes

    async def _let_go(self) -> None:
        self._healed.set()
        self._healed = asyncio.Event()

    async def _start(self) -> None:
        self._session = aiohttp.ClientSession(auto_decompress=False)
        app = web.Application()
        app.router.add_get("/{path:.*}", self._serve)
        # With it a handler ends as soon as the engine hangs up.
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


def _sum(counter: Counter[str], pattern: str) -> int:
    return sum(count for path, count in counter.items() if re.search(pattern, path))
