"""An endpoint of webhooks that answers as a test scripts it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import web
from multidict import CIMultiDict
from standardwebhooks.webhooks import Webhook

from tests.support.controlplane.system import PATIENCE

Script = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Received:
    """A request."""

    path: str
    headers: CIMultiDict[str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def message(self) -> Any:
        return json.loads(self.body)

    @property
    def kind(self) -> str:
        return str(self.message["type"])

    @property
    def object(self) -> str:
        return str(self.message["data"].get("object"))

    def verify(self, secret: str) -> None:
        """Check the signature as receivers do, with the library of the specification."""
        assert Webhook(secret).verify(self.body, dict(self.headers)) == self.message


class Receiver:
    """An HTTP server on 127.0.0.1. `answer` is called for each request; by default it is 204."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.answer: Script = self.accept
        self.url = ""
        self._stack = AsyncExitStack()
        self._arrived = asyncio.Condition()

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def accept(self, _: web.Request) -> web.StreamResponse:
        return web.Response(status=204)

    def answers(self, *statuses: int, **headers: str) -> None:
        """Answer with these statuses, one after another, then with 204."""
        left = list(statuses)

        async def answer(_: web.Request) -> web.StreamResponse:
            status = left.pop(0) if left else 204
            text = f"answer {status}" if status != 204 else None
            return web.Response(status=status, text=text, headers=headers)

        self.answer = answer

    async def gets(self, count: int) -> list[Received]:
        """Wait until this number of requests has arrived; return them."""
        async with asyncio.timeout(PATIENCE), self._arrived:
            await self._arrived.wait_for(lambda: len(self.received) >= count)
        return self.received

    async def gets_objects(self, objects: Iterable[str]) -> list[str]:
        """Wait until messages about all of these objects have arrived; return all objects."""
        wanted = set(objects)
        async with asyncio.timeout(PATIENCE), self._arrived:
            await self._arrived.wait_for(lambda: wanted <= {r.object for r in self.received})
        return [each.object for each in self.received]

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        async with self._arrived:
            self.received.append(Received(request.path, CIMultiDict(request.headers), body))
            self._arrived.notify_all()
        return await self.answer(request)
