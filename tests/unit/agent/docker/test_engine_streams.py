"""Streams of an engine that disconnects, stalls or sends garbage."""

import asyncio
import base64
import contextlib
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from aiohttp import web

from agent.docker.bodies import message_of
from agent.docker.calls import Timeouts
from agent.docker.engine import DockerEngine
from agent.domain import errors
from agent.domain.containers.engine import Credentials, LogPiece
from tests.support.agent.scripted_engine import (
    CREATED,
    IMAGE,
    ScriptedEngine,
    an_engine,
    drained,
    refuses,
    says,
    streams,
)

STREAMS: dict[str, tuple[str, Callable[[DockerEngine], Any]]] = {
    "logs": ("GET /containers/x/logs", lambda engine: engine.logs("x", follow=True)),
    "archive": ("GET /containers/x/archive", lambda engine: engine.archive("x", "/data")),
    "events": ("GET /events", lambda engine: engine.events("agent-1")),
    "pull": ("POST /images/create", lambda engine: engine.pull(IMAGE)),
}
FIRST_PIECE = {
    "logs": b"\1\0\0\0\0\0\0\x242026-01-02T03:04:05.000000006Z hello",
    "archive": b"tar",
    "events": b'{"Actor": {"Attributes": {"io.tiltyard.session": "x"}}}\n',
    "pull": b'{"status": "Downloading", "id": "a", "progressDetail": {"current": 1}}\n',
}


def described(target: str = "") -> dict[str, str]:
    """The header of an archive whose path is a link to `target`, or none."""
    text = json.dumps({"name": "data", "size": 4096, "mode": 0, "linkTarget": target})
    return {"X-Docker-Container-Path-Stat": base64.b64encode(text.encode()).decode()}


HEADERS = {"archive": described()}
# Other calls, such as the one for the version, have all the time that they need.
HASTY_STREAMS = Timeouts(stream=0.2, pull=0.2)


@pytest.mark.parametrize("stream", STREAMS)
async def test_stream_of_a_vanished_engine_fails(script: ScriptedEngine, stream: str) -> None:
    what, ask = STREAMS[stream]
    headers = HEADERS.get(stream)
    script.answer(what, streams(FIRST_PIECE[stream], then_cut=True, headers=headers))
    seen = []
    with pytest.raises(errors.EngineUnavailableError):
        async with ask(script.client) as items:
            async for item in items:
                seen.append(item)  # noqa: PERF401 - what came before the error counts
    assert len(seen) == 1


@pytest.mark.parametrize("stream", ["logs", "events"])
async def test_waiting_streams_have_no_timeout(script: ScriptedEngine, stream: str) -> None:
    what, ask = STREAMS[stream]
    more = asyncio.Event()
    script.answer(what, streams(FIRST_PIECE[stream], forever=more))
    script.answer("GET /containers/y/logs", script.hang)
    async with an_engine(script, HASTY_STREAMS) as engine, ask(engine) as items:
        await anext(items)
        with pytest.raises(errors.EngineTimeoutError):  # the whole timeout passes elsewhere
            await drained(engine.logs("y"))
        more.set()
        with contextlib.suppress(errors.EngineUnavailableError):
            assert [item async for item in items] == []


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("stream", ["logs", "events"])
async def test_waiting_stream_that_is_not_answered_times_out(
    script: ScriptedEngine, stream: str, *, begun: bool
) -> None:
    """`begun`: an error whose message does not arrive."""
    what, ask = STREAMS[stream]
    ending = asyncio.Event()
    script.answer(what, streams(b"{", forever=ending, status=500) if begun else script.hang)
    async with an_engine(script, HASTY_STREAMS) as engine:
        with pytest.raises(errors.EngineTimeoutError) as raised:
            await drained(ask(engine))
        ending.set()
    assert raised.value.call == stream


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize(
    ("stream", "error"),
    [
        ("archive", errors.EngineTimeoutError("archive")),
        ("pull", errors.RegistryTimeoutError(IMAGE)),
    ],
)
async def test_stalled_archive_or_pull_times_out(
    script: ScriptedEngine, stream: str, error: errors.AgentError, *, begun: bool
) -> None:
    what, ask = STREAMS[stream]
    ending = asyncio.Event()
    begins = streams(FIRST_PIECE[stream], forever=ending, headers=HEADERS.get(stream))
    script.answer(what, begins if begun else script.hang)
    async with an_engine(script, HASTY_STREAMS) as engine:
        with pytest.raises(type(error)) as raised:
            await drained(ask(engine))
        ending.set()
    assert str(raised.value) == str(error)


async def test_timeout_of_the_reader_is_not_converted(script: ScriptedEngine) -> None:
    script.answer("GET /events", streams(FIRST_PIECE["events"]))
    with pytest.raises(TimeoutError):
        async with script.client.events("agent-1") as items:
            await anext(items)
            raise TimeoutError


async def test_log_of_a_stalled_reader_is_closed_in_time(script: ScriptedEngine) -> None:
    ending = asyncio.Event()
    script.answer("GET /containers/x/logs", streams(FIRST_PIECE["logs"], forever=ending))
    async with script.client.logs("x", longest=1.0) as answer:
        await anext(answer)
        transport = script.requests[-1].transport
        while transport is not None and not transport.is_closing():
            await asyncio.sleep(0)
        ending.set()
        with pytest.raises(errors.EngineUnavailableError):
            await anext(answer)


@mock.patch("agent.docker.engine_streams.GATHER_SECONDS", 1.0)
async def test_batches_log_lines(script: ScriptedEngine) -> None:
    script.answer("GET /containers/x/logs", streams(*[FIRST_PIECE["logs"]] * 100))
    async with script.client.logs("x") as answer:
        assert [len(pieces) async for pieces in answer] == [100]


async def test_error_of_the_engine_within_a_log_is_raised(script: ScriptedEngine) -> None:
    words = b"Error grabbing logs: unexpected EOF"
    complaint = b"\3\0\0\0" + len(words).to_bytes(4, "big") + words
    script.answer("GET /containers/x/logs", streams(FIRST_PIECE["logs"], complaint))
    async with script.client.logs("x") as answer:
        [piece] = await anext(answer)
        assert piece == LogPiece(1, b"2026-01-02T03:04:05.000000006Z", b"hello")
        with pytest.raises(errors.EngineError, match="unexpected EOF"):
            await anext(answer)


@pytest.mark.parametrize(
    ("stream", "body", "error"),
    [
        ("logs", b"no frames at all", errors.EngineError),
        ("logs", FIRST_PIECE["logs"][:-1], errors.EngineUnavailableError),
        ("events", b"{\n", errors.EngineError),
        ("events", b'{"Actor": {}}\n', errors.EngineError),
    ],
)
async def test_malformed_stream_is_an_error(
    script: ScriptedEngine, stream: str, body: bytes, error: type[errors.AgentError]
) -> None:
    what, ask = STREAMS[stream]
    script.answer(what, streams(body))
    with pytest.raises(error):
        await drained(ask(script.client))


@pytest.mark.parametrize(
    ("status", "message", "error"),
    [
        (404, "manifest unknown", errors.ImageNotFoundError),
        (500, "unauthorized: authentication required", errors.RegistryUnavailableError),
        (500, "net/http: request canceled (Client.Timeout exceeded)", errors.RegistryTimeoutError),
        (200, "received unexpected HTTP status: 502 Bad Gateway", errors.RegistryUnavailableError),
    ],
)
async def test_converts_pull_failure_in_status_or_stream(
    script: ScriptedEngine, status: int, message: str, error: type[errors.AgentError]
) -> None:
    line = json.dumps({"errorDetail": {"message": message}, "error": message}).encode()
    late = streams(FIRST_PIECE["pull"], line + b"\r\n")
    script.answer("POST /images/create", late if status == 200 else refuses(status, message))
    with pytest.raises(error):
        await drained(script.client.pull(IMAGE))


async def test_missing_path_and_container_are_distinguished(script: ScriptedEngine) -> None:
    script.answer("GET /containers/x/archive", refuses(404, "as worded by any engine"))
    with pytest.raises(errors.ContainerGoneError):
        await drained(script.client.archive("x", "/data"))
    script.answer("GET /containers/x/json", says(CREATED))
    with pytest.raises(errors.PathNotFoundError):
        await drained(script.client.archive("x", "/data"))


async def test_the_archive_of_a_link_is_that_of_its_target(script: ScriptedEngine) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.query["path"] == "/saves":
            return await streams(b"the link", headers=described("/real"))(request)
        assert request.query["path"] == "/real"
        return await streams(b"the files", headers=described())(request)

    script.answer("GET /containers/x/archive", answer)
    async with script.client.archive("x", "/saves") as chunks:
        assert b"".join([chunk async for chunk in chunks]) == b"the files"


@pytest.mark.parametrize(
    "header",
    [
        "no base64!",
        base64.b64encode(b"no JSON").decode(),
        base64.b64encode(b"{}").decode(),
        "",
    ],
)
async def test_an_archive_with_an_unreadable_description_is_an_error(
    script: ScriptedEngine, header: str
) -> None:
    headers = {"X-Docker-Container-Path-Stat": header}
    script.answer("GET /containers/x/archive", streams(b"tar", headers=headers))
    with pytest.raises(errors.EngineError):
        await drained(script.client.archive("x", "/data"))


async def test_credentials_go_to_the_engine_for_this_pull_alone(script: ScriptedEngine) -> None:
    script.answer("POST /images/create", streams(FIRST_PIECE["pull"]))
    await drained(script.client.pull(IMAGE, Credentials("user", "pa>?ss\u00fc")))
    await drained(script.client.pull(IMAGE))
    first, second = (r for r in script.requests if r.path == "/images/create")
    assert first.query["fromImage"] == IMAGE
    assert json.loads(base64.urlsafe_b64decode(first.headers["X-Registry-Auth"])) == {
        "username": "user",
        "password": "pa>?ss\u00fc",
        "serveraddress": "registry.test",
    }
    assert "X-Registry-Auth" not in second.headers


async def test_error_that_arrives_in_pieces_is_read_to_its_end() -> None:
    reader = asyncio.StreamReader()
    body = b'{"message": "no such file"}'
    reader.feed_data(body[:9])
    response: Any = SimpleNamespace(content=reader)
    message = asyncio.create_task(message_of(response))
    await asyncio.sleep(0)
    reader.feed_data(body[9:])
    reader.feed_eof()
    assert await message == "no such file"


async def test_asks_for_events_of_containers_of_sessions_alone(script: ScriptedEngine) -> None:
    script.answer("GET /events", streams(FIRST_PIECE["events"]))
    async with script.client.events("agent-1") as items:
        await anext(items)
    filters = json.loads(script.requests[-1].query["filters"])
    assert filters["label"] == ["io.tiltyard.agent=agent-1", "io.tiltyard.session"]
