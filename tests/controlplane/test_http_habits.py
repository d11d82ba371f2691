"""What HTTP gives for free, and clients, proxies and monitors count on."""

import asyncio
import json

import pytest

from controlplane.http.input import MAX_HEAD
from tests.controlplane.test_edge import limited
from tests.support.controlplane.raw_http import RawAnswer, Wire, assert_documented
from tests.support.controlplane.system import System, assert_error

pytestmark = pytest.mark.system(application={})

PLAYERS = {"session": "s", "players": ["ann", "bob"]}


def head_of(system: System, line: str, *fields: str) -> bytes:
    """Return the head of a request of alice."""
    token = f"Authorization: Bearer {system.tokens['alice']}"
    return "\r\n".join([f"{line} HTTP/1.1", "Host: a", token, *fields, "", ""]).encode()


async def answer_to(system: System, data: bytes) -> RawAnswer:
    """Send bytes on a new connection, and read the first answer."""
    async with Wire(system.port) as wire:
        wire.send(data)
        answer = await wire.answer(data.split(b" ", 1)[0].decode())
    assert answer is not None
    return answer


async def test_players_join_and_leave_by_post(system: System) -> None:
    await system.start(id="s")
    joined = await system.call("POST", "/session/player/join", json=PLAYERS)
    assert joined.status == 200
    assert joined.json == {"count": 2, "players": ["ann", "bob"]}
    left = await system.call("POST", "/session/player/leave", json=PLAYERS)
    assert left.status == 200
    assert left.json == {"count": 0, "players": ["ann", "bob"]}
    assert_error(
        await system.call("POST", "/session/player/join", json={}), 422, "session", "players"
    )


@pytest.mark.parametrize(
    "path",
    ["/healthz", "/readyz", "/openapi.json", "/session", "/session/s", "/region", "/docs"],
)
async def test_head_answers_as_get_without_a_body(system: System, path: str) -> None:
    await system.start(id="s")
    async with Wire(system.port) as wire:
        wire.send(head_of(system, f"GET {path}"))
        got = await wire.read_answer()
        wire.send(head_of(system, f"HEAD {path}"))
        head = await wire.answer("HEAD")
        wire.send(head_of(system, "GET /region"))
        after = await wire.read_answer()
    assert head is not None
    assert got.status == 200
    assert head.status == 200
    for name in ("content-type", "content-length", "cache-control"):
        assert head.headers[name] == got.headers[name]
    assert after.json["regions"]


async def test_head_is_refused_as_get_is(system: System) -> None:
    assert (await answer_to(system, head_of(system, "HEAD /session/none"))).status == 404
    assert (await answer_to(system, b"HEAD /session HTTP/1.1\r\nHost: a\r\n\r\n")).status == 401


async def test_head_of_a_followed_log_ends_with_its_headers(system: System) -> None:
    await system.start(id="s")
    async with Wire(system.port) as wire:
        wire.send(head_of(system, "HEAD /logs?id=s&follow=true"))
        head = await wire.answer("HEAD")
        wire.send(head_of(system, "GET /region"))
        assert (await wire.read_answer()).json["regions"]
        await system.agent.log_cancelled.wait()
    assert head is not None
    assert head.status == 200
    assert head.headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/session", "GET,HEAD,OPTIONS,POST"),
        ("/session/s", "DELETE,GET,HEAD,OPTIONS"),
        ("/session/player/join", "OPTIONS,POST,PUT"),
        ("/healthz", "GET,HEAD,OPTIONS"),
        ("/", "DELETE,GET,HEAD,OPTIONS,POST,PUT"),
        ("*", "DELETE,GET,HEAD,OPTIONS,POST,PUT"),
    ],
)
async def test_options_lists_the_methods_of_a_path(
    system: System, path: str, allowed: str
) -> None:
    for version in ("1.0", "1.1"):
        answer = await answer_to(
            system, f"OPTIONS {path} HTTP/{version}\r\nHost: a\r\n\r\n".encode()
        )
        assert answer.status == 204
        assert answer.headers["allow"] == allowed


async def test_an_unknown_method_is_told_the_methods_of_the_path(system: System) -> None:
    wrong = assert_error(await system.call("PATCH", "/session"), 405)
    assert wrong.headers["Allow"] == "GET,HEAD,OPTIONS,POST"
    assert_error(await system.call("OPTIONS", "/none"), 404)


async def test_connections_that_stay_open_say_for_how_long(system: System) -> None:
    """Five seconds less than they do, so that no request meets the end."""
    for line in ("GET /region", "GET /logs?id=s"):
        await system.start(id="s")
        kept = await answer_to(system, head_of(system, line))
        assert kept.headers["keep-alive"] == "timeout=70"
        closed = await answer_to(system, head_of(system, line, "Connection: close"))
        assert closed.headers["connection"] == "close"
        assert "keep-alive" not in closed.headers


@pytest.mark.parametrize("is_whole", [True, False])
@limited(linger=0.1)
async def test_the_sum_of_all_headers_is_bounded(system: System, is_whole: bool) -> None:
    fields = [f"X-{number}: {'x' * 4000}" for number in range(MAX_HEAD // 4000 + 1)]
    data = head_of(system, "GET /region", *fields)
    if not is_whole:
        data = data[:-2] + b"X-Last: " + b"x" * 8000
    async with Wire(system.port) as wire:
        wire.send(data)
        answer = await wire.read_answer()
        await wire.ends()
    assert answer.status == 431
    assert_documented(answer)
    assert json.loads(answer.body)["path"] == "/region"


@pytest.mark.parametrize(
    ("line", "fields", "status"),
    [
        ("POST /none", ("Content-Length: 2",), 404),
        ("PATCH /session", ("Content-Length: 2",), 405),
        ("POST /session", ("Content-Length: 2000000",), 413),
        ("POST /session", ("Content-Length: 2", "Content-Encoding: gzip"), 422),
        ("POST /operator/account", ("Content-Length: 2",), 403),
    ],
)
async def test_a_refusal_does_not_ask_for_the_body(
    system: System, line: str, fields: tuple[str, ...], status: int
) -> None:
    data = head_of(system, line, "Expect: 100-continue", *fields)
    answer = await answer_to(system, data)
    assert answer.status == status
    assert answer.interim == []
    assert answer.headers["connection"] == "close"


async def test_a_bad_token_is_refused_before_the_body(system: System) -> None:
    head = ("POST /session HTTP/1.1", "Host: a", "Expect: 100-continue", "Content-Length: 2")
    answer = await answer_to(system, "\r\n".join([*head, "", ""]).encode())
    assert answer.status == 401
    assert answer.interim == []


async def test_an_accepted_request_is_asked_for_its_body(system: System) -> None:
    body = json.dumps({"location": "local", "image": "game"}).encode()
    head = head_of(system, "POST /session", "Expect: 100-continue", f"Content-Length: {len(body)}")
    async with Wire(system.port) as wire:
        wire.send(head)
        async with asyncio.timeout(10):
            assert await wire.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        wire.send(body)
        answer = await wire.read_answer()
        assert answer.status == 201
        wire.send(head_of(system, "GET /region"))
        assert (await wire.read_answer()).status == 200
