"""An HTTP server with scripted answers, including ones that no control plane sends."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

from aiohttp import web

from controlplane.domain.access import tokens


class StubApi:
    """Records each request with its body; answers 204 by default.

    `answers` holds JSON values or functions that make responses; `before` runs before each.
    """

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Any] = {}
        self.requests: list[tuple[str, str, Any]] = []
        self.token = tokens.mint().text
        self.url = ""
        self.before: Callable[[], Awaitable[object]] | None = None
        self._runner = web.ServerRunner(web.Server(self._answer))

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def token_file(self, folder: Path) -> Path:
        file = folder / "stub-token"
        file.write_text(self.token)
        return file

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.headers["Authorization"] == f"Bearer {self.token}"
        sent = await request.read()
        self.requests.append((request.method, request.path_qs, json.loads(sent) if sent else None))
        if self.before is not None:
            await self.before()
        answer = self.answers.get((request.method, request.path))
        if answer is None:
            return web.Response(status=204)
        return answer() if callable(answer) else web.json_response(answer)
