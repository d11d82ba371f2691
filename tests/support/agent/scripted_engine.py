"""An engine on a unix socket with scripted answers."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

from agent.docker.calls import Timeouts
from agent.docker.engine import DockerEngine

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

IMAGE = "registry.test/game@sha256:" + "a" * 64
ACCEPTED = {"Config": {"Cmd": ["/game"]}}
"""The description of an image that can run."""

PATIENT = Timeouts()
HASTY = Timeouts(read=0.2, create=0.2, start=0.2, kill=0.2, remove=0.2, stream=0.2, pull=0.2)
"""For tests of timeouts."""

INFO: dict[str, Any] = {
    "ServerVersion": "20.10.24",
    "NCPU": 2,
    "MemTotal": 2**32,
    "LiveRestoreEnabled": True,
    "MemoryLimit": True,
    "SwapLimit": True,
    "CpuCfsQuota": True,
    "PidsLimit": True,
    "SecurityOptions": ["name=seccomp,profile=default"],
}
BRIDGE = {"Name": "bridge", "Options": {"com.docker.network.bridge.enable_icc": "false"}}
CREATED: dict[str, Any] = {
    "Id": "abc",
    "Name": "/tiltyard-x",
    "Config": {"Labels": {}},
    "State": {
        "Status": "created",
        "Pid": 0,
        "ExitCode": 0,
        "OOMKilled": False,
        "Error": "",
        "StartedAt": "0001-01-01T00:00:00Z",
        "FinishedAt": "0001-01-01T00:00:00Z",
    },
}


class ScriptedEngine:
    """Answers `/version`, `/info`, `/networks` and IMAGE; a test scripts the rest.

    A request without a script gets a 404 as for a missing container. `seen` counts requests,
    `arrived` waits for the first of a kind.
    """

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "engine.sock"
        self.channel = folder / ".init"  # The fixture makes it
        self.client: DockerEngine  # Set by the fixture
        self.seen: dict[str, int] = defaultdict(int)
        self.requests: list[web.BaseRequest] = []
        self._answers: dict[str, list[Answer]] = {}
        self._arrived: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._let_go = asyncio.Event()
        self.answer("GET /version", says({"ApiVersion": "1.41", "MinAPIVersion": "1.12"}))
        self.answer("GET /info", says(INFO))
        self.answer("GET /networks", says([BRIDGE]))
        self.answer(f"GET /images/{IMAGE}/json", says(ACCEPTED))

    def answer(self, what: str, *answers: Answer) -> None:
        """Script answers by method and path; the last one repeats."""
        self._answers[what] = list(answers)

    async def hang(self, _: web.Request) -> web.Response:
        """An answer that is held until `let_go`."""
        await self._let_go.wait()
        return web.Response(status=204)

    def let_go(self) -> None:
        self._let_go.set()

    async def arrived(self, what: str) -> None:
        await self._arrived[what].wait()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        runner = web.ServerRunner(web.Server(self._respond), shutdown_timeout=0)
        await runner.setup()
        await web.UnixSite(runner, str(self.socket)).start()
        try:
            yield
        finally:
            self.let_go()
            await runner.cleanup()
            self.socket.unlink(missing_ok=True)

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path.removeprefix("/v1.41")
        what = f"{request.method} {path}"
        self.seen[what] += 1
        self.requests.append(request)
        self._arrived[what].set()
        answers = self._answers.get(what)
        if answers is None:
            return fails(404, "No such container: x")
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return await answer(request)  # type: ignore[arg-type]  # answers use only what both have


def inspected(**state: Any) -> dict[str, Any]:
    """Describe a container in another state."""
    return CREATED | {"State": CREATED["State"] | state}


def fails(status: int, message: str) -> web.Response:
    return web.json_response({"message": message}, status=status)


def says(body: Any, status: int = 200) -> Answer:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(body, status=status)

    return answer


def refuses(status: int, message: str) -> Answer:
    return says({"message": message}, status)


def raw(body: bytes, status: int = 200) -> Answer:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, status=status)

    return answer


async def cut(request: web.Request) -> web.Response:
    """Break the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def streams(
    *pieces: bytes,
    then_cut: bool = False,
    forever: asyncio.Event | None = None,
    headers: Mapping[str, str] | None = None,
    status: int = 200,
) -> Answer:
    """A body in parts, followed by its end, a broken connection, or nothing."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status, headers=headers)
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        if forever is not None:
            await forever.wait()
        if then_cut:
            assert request.transport is not None
            request.transport.close()
        return response

    return answer


@contextlib.asynccontextmanager
async def an_engine(
    script: ScriptedEngine, timeouts: Timeouts = PATIENT
) -> AsyncIterator[DockerEngine]:
    engine = DockerEngine(str(script.socket), timeouts=timeouts)
    try:
        yield engine
    finally:
        script.let_go()
        await engine.close()


async def drained(stream: Any) -> list[Any]:
    async with stream as items:
        return [item async for item in items]
