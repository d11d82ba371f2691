"""A registry over real HTTP that can be told to fail."""

from __future__ import annotations

import asyncio
import hashlib

from aiohttp import web


class FakeRegistry:
    """Knows tags of repositories; `status` makes every answer a failure, `silent` makes none."""

    def __init__(self) -> None:
        self.tags: dict[tuple[str, str], str] = {}
        self.status = 200
        self.silent = False
        self.heads = True
        self.address = ""
        self._stopping = asyncio.Event()
        self._runner: web.AppRunner | None = None

    def push(self, repository: str, tag: str) -> str:
        """Add a tag; return its digest."""
        digest = f"sha256:{hashlib.sha256(f'{repository}:{tag}'.encode()).hexdigest()}"
        self.tags[repository, tag] = digest
        return digest

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/v2/{repository:.+}/manifests/{tag}", self._manifest)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.address = f"127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        self._stopping.set()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _manifest(self, request: web.Request) -> web.Response:
        if self.silent:
            await self._stopping.wait()
        if self.status != 200:
            return web.Response(status=self.status, headers={"Location": "http://192.0.2.9/"})
        key = (request.match_info["repository"], request.match_info["tag"])
        if key not in self.tags:
            return web.Response(status=404)
        if request.method == "GET":
            return web.Response(body=f"{key[0]}:{key[1]}".encode())
        if not self.heads:
            return web.Response(status=405)
        return web.Response(headers={"Docker-Content-Digest": self.tags[key]})
