"""A registry with a login, as the tests of its client see it."""

import asyncio
import base64
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from aiohttp import web

from controlplane.registries.endpoint import Endpoint
from controlplane.registries.http import RegistryHttp, Reply

SCOPE = "repository:studio/game:pull"
LOGIN = {"username": "robot", "password": "s3cret"}
BASIC = "Basic " + base64.b64encode(b"robot:s3cret").decode()


async def ask(http: RegistryHttp, address: str, scope: str = SCOPE, **more: Any) -> Reply:
    """Ask a registry as the control plane does."""
    return await http.ask(Endpoint(address, **more), "/v2/x", scope=scope, max_bytes=100)


async def listen(stack: AsyncExitStack, accept: Callable[..., Any]) -> str:
    """Accept connections; return the address."""
    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    stack.push_async_callback(server.wait_closed)
    stack.callback(server.close)
    return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


class Server:
    """A registry that requires a login, with its token service."""

    def __init__(self, http: RegistryHttp) -> None:
        self._http = http
        self.challenge = 'Bearer realm="http://{address}/token",service="the registry"'
        self.accepts: Callable[[str], bool] = lambda header: header in self.given
        self.given: set[str] = set()
        self.token: dict[str, Any] = {"token": "t1", "expires_in": 300}
        self.token_status = 200
        self.refusal = 401  # Status for a rejected token
        self.asked: list[tuple[str, dict[str, str], str]] = []
        self.address = ""

    async def start(self, stack: AsyncExitStack) -> None:
        app = web.Application()
        app.router.add_get("/v2/{rest:.*}", self._answer)
        app.router.add_get("/token", self._make_token)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.address = f"127.0.0.1:{runner.addresses[0][1]}"

    async def ask(self, scope: str = SCOPE, **more: Any) -> Reply:
        """Ask this registry as the control plane does."""
        return await ask(self._http, self.address, scope, **more)

    @property
    def paths(self) -> list[str]:
        return [path for path, _, _ in self.asked]

    def _note(self, request: web.Request) -> str:
        header = request.headers.get("Authorization", "")
        self.asked.append((request.path, dict(request.query), header))
        return header

    async def _answer(self, request: web.Request) -> web.Response:
        header = self._note(request)
        if self.accepts(header):
            return web.Response(text="here")
        challenge = self.challenge.format(address=self.address)
        status = self.refusal if header else 401
        return web.Response(status=status, headers={"WWW-Authenticate": challenge})

    async def _make_token(self, request: web.Request) -> web.Response:
        self._note(request)
        if isinstance(self.token.get("token"), str):
            self.given.add(f"Bearer {self.token['token']}")
        return web.json_response(self.token, status=self.token_status)
