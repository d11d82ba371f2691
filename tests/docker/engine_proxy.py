"""A proxy for the engine's socket that loses answers, cuts streams and stalls them."""

import asyncio
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from tests.support.registry_faults import HOP_BY_HOP, Exchange
from tests.support.serving_thread import ServingThread

Deed = Callable[[Mapping[str, str]], None]
_NEVER = re.compile(r"(?!)")


class EngineProxy(ServingThread):
    """Proxies `upstream` at `socket`, with faults on demand, on its own thread.

    A request is named by method and path without the version, `POST /containers/create`; faults
    take patterns that are searched in such names.
    """

    def __init__(self, upstream: Path) -> None:
        super().__init__("engine-proxy")
        self._folder = Path(tempfile.mkdtemp(prefix="typ-", dir="/tmp"))
        self.socket = self._folder / "engine.sock"
        self.requests: list[str] = []  # The names of all requests, including faulty ones
        self._upstream = upstream
        self._lost: list[re.Pattern[str]] = []
        self._before: list[tuple[re.Pattern[str], Deed]] = []
        self._cut = self._silent = _NEVER
        self._under_way: dict[asyncio.Transport, str] = {}
        """The current request of each connection."""

    def lose_answer(self, pattern: str) -> None:
        """Pass the next such request on, then disconnect instead of answering."""
        self._lost.append(re.compile(pattern))

    def before(self, pattern: str, deed: Deed) -> None:
        """Call a function with the query of the next such request before the engine gets it."""
        self._before.append((re.compile(pattern), deed))

    def cut(self, pattern: str) -> None:
        """Disconnect such requests, including those in progress, until `heal`."""
        self._cut = re.compile(pattern)
        self._loop.call_soon_threadsafe(self._hang_up)

    def silence(self, pattern: str) -> None:
        """Drop all further data of answers to such requests."""
        self._silent = re.compile(pattern)

    def heal(self) -> None:
        """End all faults, and disconnect stalled streams."""
        silent = self._silent
        self._cut = _NEVER
        self._silent = _NEVER
        self._loop.call_soon_threadsafe(self._hang_up, silent)

    def count(self, pattern: str) -> int:
        """The number of such requests."""
        return sum(bool(re.search(pattern, name)) for name in self.requests)

    def _end(self) -> None:
        super()._end()
        shutil.rmtree(self._folder)

    async def _start(self) -> None:
        self._engine = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(str(self._upstream), limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(),
            auto_decompress=False,
        )
        # A client that disconnects ends its request, as with the engine itself.
        server = web.Server(self._respond, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=0)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(self.socket)).start()

    async def _stop(self) -> None:
        self.cut("")
        await asyncio.sleep(0)
        await self._runner.cleanup()
        await self._engine.close()
        await self._loop.shutdown_default_executor()

    async def _respond(self, request: Any) -> web.StreamResponse:
        name = f"{request.method} {re.sub(r'^/v[0-9.]+', '', request.path)}"
        self.requests.append(name)
        body = await request.read()
        due = [entry for entry in self._before if entry[0].search(name)]
        for entry in due:
            self._before.remove(entry)
            _, deed = entry
            await asyncio.to_thread(deed, dict(request.query))
        url = URL(f"http://docker{request.raw_path}", encoded=True)
        headers = {
            header: value
            for header, value in request.headers.items()
            if header.lower() not in HOP_BY_HOP
        }
        connection = request.transport
        self._under_way[connection] = name
        try:
            if self._cut.search(name):
                connection.abort()
                return web.Response()
            async with self._engine.request(
                request.method, url, data=body or None, headers=headers
            ) as answer:
                return await self._pass_on(request, name, answer)
        finally:
            del self._under_way[connection]

    async def _pass_on(
        self, request: Any, name: str, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        lost = next((pattern for pattern in self._lost if pattern.search(name)), None)
        if lost is not None:
            self._lost.remove(lost)
            await answer.read()
            request.transport.abort()
            return web.Response()
        response = await Exchange(request, answer).begin()
        async for chunk in answer.content.iter_any():
            if not self._silent.search(name):
                await response.write(chunk)
        await response.write_eof()
        return response

    def _hang_up(self, silent: re.Pattern[str] = _NEVER) -> None:
        for connection, name in self._under_way.items():
            if self._cut.search(name) or silent.search(name):
                connection.abort()
