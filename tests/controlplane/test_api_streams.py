"""GET /logs and GET /artifacts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientPayloadError, ClientResponse

from tests.support.controlplane.fake_agent import refuse, refusing
from tests.support.controlplane.system import System, assert_error, eventually

LOG, ARTIFACT = "/logs?id=s&follow=true", "/artifacts?session=s&path=/data"

pytestmark = pytest.mark.system(application={}, session="s")


@asynccontextmanager
async def following(system: System, token: str = "") -> AsyncIterator[ClientResponse]:
    """Follow the log of the session `s`; enter with its first line, if any, read."""
    headers = {"Authorization": f"Bearer {token or system.tokens['alice']}"}
    async with system.http.get(system.control_plane.base_url + LOG, headers=headers) as response:
        assert response.status == 200
        for line in system.agent.logs[:1]:
            assert await response.content.readline() == line
        yield response


async def test_a_log_is_read_whole_or_followed_until_the_session_ends(system: System) -> None:
    answer = await system.call("GET", "/logs?id=s")
    assert (answer.status, answer.body) == (200, b"line 1\nline 2\n")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    async with following(system) as response:
        system.agent.log_follow.set()
        assert await response.read() == b"line 2\n"


@pytest.mark.parametrize("lines", [[], [b"line\n"]])
async def test_disconnected_follower_ends_the_stream(system: System, lines: list[bytes]) -> None:
    system.agent.logs = lines
    async with following(system) as response:
        response.close()
    await eventually(system.agent.log_cancelled.is_set)


async def test_a_follower_does_not_delay_the_shutdown(system: System) -> None:
    async with following(system):
        await system.stop_serving()
    await eventually(system.agent.log_cancelled.is_set)


async def test_a_failure_in_the_middle_aborts_the_connection(system: System) -> None:
    fail = asyncio.Event()

    async def refuse_then(_: Any, context: Any) -> None:
        await fail.wait()
        await refuse(context, "ENGINE_UNAVAILABLE")

    system.agent.logs, system.agent.after_logs = [b"line 1\n"], refuse_then
    async with following(system) as response:
        fail.set()
        with pytest.raises(ClientPayloadError):
            await response.read()


async def test_an_artifact_comes_after_the_end(system: System) -> None:
    assert_error(await system.call("GET", ARTIFACT), 409)
    assert (await system.call("DELETE", "/session/s")).status == 204
    answer = await system.call("GET", "/artifacts?session=s&path=/data/save.json")
    assert (answer.status, answer.body) == (200, b"tar of /data/save.json")
    assert answer.headers["Content-Type"] == "application/x-tar"


@pytest.mark.parametrize(
    ("path", "reason", "status"),
    [
        (LOG, "SESSION_NOT_FOUND", 404),
        (LOG, "LOG_GONE", 404),
        (LOG, "ENGINE_UNAVAILABLE", 503),
        (LOG, "NO_CAPACITY", 503),
        (ARTIFACT, "CONTAINER_GONE", 404),
        (ARTIFACT, "PATH_NOT_FOUND", 404),
        (ARTIFACT, "SESSION_LIVE", 409),
        (ARTIFACT, "ARTIFACT_TOO_LARGE", 413),
        (ARTIFACT, "NO_CAPACITY", 503),
        (ARTIFACT, "DISK_FULL", 503),
    ],
)
async def test_a_refusal_is_an_error_before_the_first_byte(
    system: System, monkeypatch: pytest.MonkeyPatch, path: str, reason: str, status: int
) -> None:
    monkeypatch.setattr("controlplane.api.operations.streams.FIRST_BYTE_WAIT", None)
    await system.call("DELETE", "/session/s")
    system.agent.before_logs = system.agent.before_artifact = refusing(reason)
    answer = await system.call("GET", path)
    assert_error(answer, status)
    assert ("Retry-After" in answer.headers) == (reason == "NO_CAPACITY")
