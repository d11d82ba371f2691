"""EventSources of others, in Chromium and Node, and the proxy that adds their token.

Their program reports what it gets to the proxy, with POST /seen.
"""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

import aiohttp
from aiohttp import web

from tests.support.controlplane.system import System

NAMES = ("session.starting", "stream.open", "stream.end", "stream.gap")

FOLLOW = """
let last = Promise.resolve();
function report(what) {
  return last = last.catch(() => {}).then(() =>
    fetch(base + "/seen", {method: "POST", body: JSON.stringify(what)}));
}
const source = new EventSource(base + "/event?kind=session.*");
for (const name of NAMES) {
  source.addEventListener(name, (event) =>
    report({name, id: event.lastEventId, data: JSON.parse(event.data)}));
}
source.onerror = () => setTimeout(() => report({name: "error", state: source.readyState}));
"""
"""For a browser and Node alike. `state` 2 is CLOSED, for good."""

PAGE = f"<script>const base = ''; const NAMES = {list(NAMES)}; {FOLLOW}</script>"
NODE = f"""
const {{EventSource}} = await import(process.argv[1]);
const base = process.argv[2];
const NAMES = {list(NAMES)};
{FOLLOW}
setInterval(() => {{}}, 1e9);
"""
"""For a release of npm's package. Version 5 lets Node exit while it waits to connect again."""


class TokenProxy:
    """Passes requests on to a control plane with a token, and collects what is reported."""

    def __init__(self, system: System, token: str) -> None:
        self._system = system
        self._token = token
        self._client = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        server = web.Server(self._answer, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        self._has_changed = asyncio.Event()
        self.url = ""
        self.seen: list[dict[str, Any]] = []
        self.last_ids: list[str | None] = []
        """The `Last-Event-ID` of each connection."""

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()
        await self._runner.cleanup()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition on what was reported holds."""
        async with asyncio.timeout(60):
            while not holds():
                await self._has_changed.wait()
                self._has_changed.clear()

    def sessions(self) -> list[str]:
        """The objects of the events of sessions, as they came."""
        return [each["data"]["object"] for each in self.seen if each["name"] == NAMES[0]]

    def count(self, name: str, **values: object) -> int:
        """Count reports of a name with these values."""
        return sum(each["name"] == name and values.items() <= each.items() for each in self.seen)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/":
            return web.Response(text=PAGE, content_type="text/html")
        if request.path == "/seen":
            self.seen.append(await request.json())
            self._has_changed.set()
            return web.Response()
        if request.path != "/event":
            return web.Response(status=404)
        self.last_ids.append(request.headers.get("Last-Event-ID"))
        passed = {
            name: text
            for name, text in request.headers.items()
            if name in {"Accept", "Last-Event-ID"}
        }
        passed["Authorization"] = f"Bearer {self._token}"
        url = self._system.control_plane.base_url + request.path_qs
        try:
            async with self._client.get(url, headers=passed) as answer:
                return await _pass_on(request, answer)
        except aiohttp.ClientError:
            # The control plane is down. A status, such as 502, would end an EventSource for good.
            assert request.transport is not None
            request.transport.abort()
            return web.Response(status=502)


async def _pass_on(request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    headers = {"Content-Type": answer.headers["Content-Type"]}
    response = web.StreamResponse(status=answer.status, headers=headers)
    await response.prepare(request)
    async for chunk in answer.content.iter_any():
        await response.write(chunk)
    await response.write_eof()
    return response


@asynccontextmanager
async def running(command: list[str], folder: Path) -> AsyncIterator[None]:
    """Run a program in a folder, with all that it starts, until the end of the block."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def chromium(proxy: TokenProxy, folder: Path) -> list[str]:
    """The command that opens the page of a proxy in Chromium; empty if it is not installed."""
    found = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if found is None:
        return []
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
    return [found, *flags, f"--user-data-dir={folder}/chromium", proxy.url]
