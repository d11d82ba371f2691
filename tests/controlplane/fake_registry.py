"""A registry over real HTTP that can be told to fail."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

from aiohttp import web


class FakeRegistry:
    """Knows tags of repositories; `status` makes every answer a failure, `silent` makes none.

    With `hides` it is as Docker Hub: it wants a token, gives one to anybody, and says 401 of what
    is not there. `token_status` is what its token service answers, as ghcr.io's of such ones.
    """

    def __init__(self) -> None:
        self.tags: dict[tuple[str, str], str] = {}
        self.status = 200
        self.silent = False
        self.hides = False
        self.token_status = 200
        self.asked: list[str] = []
        """The paths of all requests."""
        self.heads = True
        self.page_size = 1000
        self.heeds_n = True
        self.list_body: str | None = None
        self.link = '<http://192.0.2.9/v2/elsewhere?last={last}&n={n}>; rel="next"'
        self.address = ""
        self._stopping = asyncio.Event()
        self._runner: web.AppRunner | None = None

    def push(self, repository: str, tag: str) -> str:
        """Add a tag; return its digest."""
        digest = f"sha256:{hashlib.sha256(f'{repository}:{tag}'.encode()).hexdigest()}"
        self.tags[repository, tag] = digest
        return digest

    async def start(self) -> None:
        app = web.Application(middlewares=[self._note])
        app.router.add_get("/token", self._token)
        app.router.add_route("*", "/v2/{repository:.+}/manifests/{tag}", self._manifest)
        app.router.add_get("/v2/{repository:.+}/tags/list", self._list)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.address = f"127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        self._stopping.set()
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _note(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        self.asked.append(request.path)
        response = await handler(request)
        if self.hides and request.path != "/token":
            anonymous = request.headers.get("Authorization") != "Bearer t"
            if anonymous or response.status == 404:
                challenge = f'Bearer realm="http://{self.address}/token"'
                return web.Response(status=401, headers={"WWW-Authenticate": challenge})
        return response

    async def _token(self, request: web.Request) -> web.Response:
        return web.json_response({"token": "t"}, status=self.token_status)

    async def _list(self, request: web.Request) -> web.Response:
        if self.silent:
            await self._stopping.wait()
        if self.status != 200:
            return web.Response(status=self.status)
        if self.list_body is not None:
            return web.Response(text=self.list_body, headers={"Link": self.link})
        repository, last = request.match_info["repository"], request.query.get("last", "")
        tags = sorted(tag for name, tag in self.tags if name == repository and tag > last)
        asked = int(request.query["n"]) if self.heeds_n else self.page_size
        size = min(self.page_size, asked)
        if not tags and not last:
            return web.Response(status=404)
        headers = (
            {"Link": self.link.format(last=tags[size - 1], n=request.query["n"])}
            if len(tags) > size
            else {}
        )
        body = {"name": repository, "tags": tags[:size]}
        return web.json_response(body, headers=headers)

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
