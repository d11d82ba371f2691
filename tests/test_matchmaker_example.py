"""docs/examples/matchmaker.py where calls are refused, lost or answered twice."""

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any
from urllib.request import Request

import pytest
from aiohttp import web

from tests.support.controlplane.stub_api import StubApi
from tests.support.doc_examples import ROOT

MADE = {"id": "m", "host": "192.0.2.1", "ports": [{"type": "udp", "container": 7777, "host": 1}]}
PORTS = {"7777/udp": 1}
HERE = {"POST": "/session", "GET": "/session/m", "DELETE": "/session/m"}


class Time:
    """A clock that goes on by sleeping alone."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def matchmaker(time: Time, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "docs" / "examples")
    module = importlib.import_module("matchmaker")
    monkeypatch.setattr(module, "time", time)
    return module


@pytest.fixture
async def api() -> AsyncIterator[StubApi]:
    async with StubApi() as stub:
        yield stub


def script(api: StubApi, *answers: tuple[str, int, Any]) -> None:
    """Answer each method's calls with these in turn: a body, or the seconds of Retry-After."""
    for method, path in HERE.items():
        turns = iter([answer[1:] for answer in answers if answer[0] == method])

        def answer(turns: Any = turns) -> web.Response:
            status, what = next(turns)
            if isinstance(what, int):
                return web.json_response({}, status=status, headers={"Retry-After": str(what)})
            return web.json_response(what, status=status)

        api.answers[method, path] = answer


async def call(function: Callable[..., Any], *arguments: str) -> Any:
    with ThreadPoolExecutor(1) as thread:
        return await asyncio.get_running_loop().run_in_executor(thread, function, *arguments)


@pytest.mark.parametrize(
    ("answers", "slept"),
    [
        ([("POST", 201, MADE)], []),
        ([("POST", 420, 7), ("POST", 503, {}), ("POST", 201, MADE)], [7.0, 1.0]),
        ([("POST", 409, {}), ("GET", 200, {"status": "running"})], []),
        (
            [
                *[("POST", 409, {})] * 3,
                ("GET", 200, {"status": "created"}),
                ("GET", 503, {}),
                ("GET", 200, {"status": "draining"}),
            ],
            [1.0, 1.0],
        ),
        ([("POST", 409, {}), ("GET", 404, {}), ("POST", 201, MADE)], [1.0]),
    ],
)
async def test_a_match_is_started_once_whatever_was_answered(
    api: StubApi,
    matchmaker: ModuleType,
    time: Time,
    answers: list[tuple[str, int, Any]],
    slept: list[float],
) -> None:
    described = {"host": MADE["host"], "port": PORTS}
    described_answers = [
        (method, status, body | described if method == "GET" else body)
        for method, status, body in answers
    ]
    script(api, *described_answers)
    tiltyard = matchmaker.Tiltyard(api.url, api.token)
    address = await call(tiltyard.start, "m", "game", "local")
    assert address.host == "192.0.2.1"
    assert address.ports == PORTS
    assert time.slept == slept
    bodies = [body for method, _, body in api.requests if method == "POST"]
    assert all(body["id"] == "m" for body in bodies)


@pytest.mark.parametrize(
    "answers",
    [
        [("POST", 420, {})],
        [("POST", 404, {})],
        [("POST", 504, {})],
        [("POST", 409, {}), ("GET", 200, {"status": "exited"})],
    ],
)
async def test_what_will_not_be_better_is_given_up_at_once(
    api: StubApi, matchmaker: ModuleType, time: Time, answers: list[tuple[str, int, Any]]
) -> None:
    script(api, *answers)
    tiltyard = matchmaker.Tiltyard(api.url, api.token)
    with pytest.raises(matchmaker.RefusedError, match=str(answers[0][1])):
        await call(tiltyard.start, "m", "game", "local")
    assert time.slept == []


def test_a_service_that_is_away_is_tried_for_a_minute(
    matchmaker: ModuleType, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def urlopen(request: Request, timeout: float) -> None:
        asked.append((request.get_method(), request.get_header("Prefer"), timeout))
        raise ConnectionRefusedError

    monkeypatch.setattr(matchmaker, "urlopen", urlopen)
    with pytest.raises(matchmaker.RefusedError, match="no answer"):
        matchmaker.Tiltyard("http://127.0.0.1", "").start("m", "game", "local")
    assert time.slept == [1.0] * 60
    assert asked == [("POST", "wait=ready; wait=30", 45)] * 61


@pytest.mark.parametrize("status", [204, 404, 409, 503])
async def test_a_stop_is_repeated_until_it_is_answered(
    api: StubApi, matchmaker: ModuleType, status: int
) -> None:
    script(api, ("DELETE", 500, {}), ("DELETE", status, None if status == 204 else {}))
    await call(matchmaker.Tiltyard(api.url, api.token).stop, "m")
    assert [method for method, *_ in api.requests] == ["DELETE", "DELETE"]
