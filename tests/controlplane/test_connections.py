"""Connections that send several requests: their order, their ends, and the next request."""

import asyncio
import json
from typing import Any, cast

import pytest

from controlplane.http.application import Application
from controlplane.http.input import MAX_HEAD, MOST_AHEAD, READ_AHEAD, Input
from tests.controlplane.test_edge import HEALTH, LONG, SHORT, ask_health, limited, refused
from tests.controlplane.test_http_habits import PLAYERS, head_of
from tests.support.controlplane.raw_http import Wire
from tests.support.controlplane.system import System
from tests.support.hold import Hold

MANY = 4 * MOST_AHEAD

pytestmark = limited()


@pytest.fixture
def first_held(monkeypatch: pytest.MonkeyPatch) -> Hold:
    """Hold requests before the application."""
    hold = Hold()
    answer = Application.answer

    async def held(self: Application, request: Any) -> Any:
        await hold()
        return await answer(self, request)

    monkeypatch.setattr(Application, "answer", held)
    return hold


def paused_bodies(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Return an event that is set when enough of a body waits for its handler."""
    paused = asyncio.Event()
    pause_body = Input.pause_body

    def pause(self: Input) -> None:
        pause_body(self)
        paused.set()

    monkeypatch.setattr(Input, "pause_body", pause)
    return paused


async def test_many_requests_sent_ahead_are_answered_in_order(system: System) -> None:
    paths = [f"/none/{number}" for number in range(MANY)]
    async with Wire(system.port) as wire:
        wire.send(b"".join(b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % p.encode() for p in paths))
        for path in paths:
            refused(await wire.answer(), 404, path)
        await ask_health(wire)


async def test_no_more_requests_are_read_than_may_wait(
    system: System, first_held: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[int] = []
    feed = Input.feed

    def fed(self: Input, data: bytes) -> bool:
        has_arrived = feed(self, data)
        waiting.append(len(self.waiting))
        return has_arrived

    monkeypatch.setattr(Input, "feed", fed)
    async with Wire(system.port) as wire:
        wire.send(HEALTH * MANY)
        await first_held.reached.wait()
        first_held.set()
        for _ in range(MANY):
            assert (await wire.read_answer()).status == 200
    assert MOST_AHEAD // 2 < max(waiting) <= MOST_AHEAD


async def test_an_upgrade_is_declined_and_http_goes_on(system: System) -> None:
    async with Wire(system.port) as wire:
        fields = b"Connection: upgrade\r\nUpgrade: websocket"
        wire.send(HEALTH.replace(b"Host: a", b"Host: a\r\n" + fields) + HEALTH)
        assert (await wire.read_answer()).status == 200
        assert (await wire.read_answer()).status == 200
        await ask_health(wire)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /next HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        (b"GET /next HTTP/1.1\r\n" + b"X: aaaa\r\n" * (MAX_HEAD // 9 + 1), 400),
        (b"GET /next HTTP/1.1\r\n" + (b"X: " + b"a" * 8000 + b"\r\n") * 5, 431),
    ],
)
async def test_a_refusal_comes_after_the_answer_in_progress(
    system: System, first_held: Hold, sent: bytes, status: int
) -> None:
    async with Wire(system.port) as wire:
        wire.send(HEALTH)
        await first_held.reached.wait()
        wire.send(sent)
        first_held.set()
        assert (await wire.read_answer()).status == 200
        refused(await wire.answer(), status, "/next")
        assert await wire.ends() == b""


async def test_a_refusal_comes_after_the_answer_to_an_upgrade(system: System) -> None:
    upgrade = b"Host: a\r\nConnection: upgrade\r\nUpgrade: websocket"
    async with Wire(system.port) as wire:
        wire.send(HEALTH.replace(b"Host: a", upgrade) + b"GET /next HTTP/1.1\r\nHost : a\r\n\r\n")
        assert (await wire.read_answer()).status == 200
        refused(await wire.answer(), 400, "/next")


async def test_refusals_of_malformed_requests_carry_a_reason(system: System) -> None:
    async with Wire(system.port) as wire:
        wire.send(b"GET / HTTP/1.1\r\nHost : a\r\n\r\n")
        assert await wire.reader.readline() == b"HTTP/1.1 400 Bad Request\r\n"


@limited(application={}, session="s")
async def test_requests_sent_ahead_follow_many_bodies_that_came_after_their_heads(
    system: System,
) -> None:
    body = json.dumps(PLAYERS).encode()
    length = f"Content-Length: {len(body)}"
    head = head_of(system, "POST /session/player/join", length, "Expect: 100-continue")
    async with Wire(system.port) as wire:
        for _ in range(MOST_AHEAD):
            wire.send(head)
            await wire.reader.readuntil(b"100 Continue\r\n\r\n")
            wire.send(body)
            assert (await wire.read_answer()).status == 200
        wire.send(HEALTH * MANY)
        for _ in range(MANY):
            assert (await wire.read_answer()).status == 200


@limited(application={}, session="s")
async def test_a_body_of_many_small_chunks_is_read(
    system: System, first_held: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though reading pauses between two of them, as aiohttp asks after a number of chunks."""
    paused = paused_bodies(monkeypatch)
    body = json.dumps(PLAYERS).encode()
    head = head_of(system, "POST /session/player/join", "Transfer-Encoding: chunked")
    async with Wire(system.port) as wire:
        wire.send(head + b"1\r\n \r\n" * (READ_AHEAD // 16 + 1))
        await paused.wait()
        first_held.set()
        wire.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        assert (await wire.read_answer()).status == 200
        await ask_health(wire)


@limited(body=4 * SHORT, application={}, session="s")
async def test_deadline_of_a_body_does_not_apply_to_the_body_of_the_next_request(
    system: System, first_held: Hold
) -> None:
    body = json.dumps(PLAYERS).encode()
    head = head_of(system, "POST /session/player/join", f"Content-Length: {len(body)}")
    async with Wire(system.port) as wire:
        wire.send(head)
        await first_held.reached.wait()
        wire.send(body + head + body[:1])
        await asyncio.sleep(4 * SHORT)  # until the deadline of the first body has passed
        first_held.set()
        wire.send(body[1:])
        assert (await wire.read_answer()).status == 200
        assert (await wire.read_answer()).status == 200


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_a_last_answer_arrives_while_the_client_sends_its_body(
    system: System, version: bytes
) -> None:
    head = b"POST /session HTTP/%s\r\nHost: a\r\nConnection: close\r\n" % version
    async with Wire(system.port) as wire:
        wire.send(head + b"Content-Length: %d\r\n\r\n" % 2**21 + bytes(2**21))
        refused(await wire.answer(), 401, "/session")
        assert await wire.reader.read() == b""


@limited(linger=LONG)
async def test_a_refusal_at_the_edge_discards_a_body_that_was_not_read(
    system: System, first_held: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = paused_bodies(monkeypatch)
    fields = b"Host: a\r\nExpect: 200-ok\r\nContent-Length: %d\r\n\r\n" % 2**24
    async with Wire(system.port) as wire:
        wire.send(HEALTH)
        await first_held.reached.wait()
        wire.send(b"POST /session HTTP/1.1\r\n" + fields + bytes(2**24))
        await paused.wait()
        first_held.set()
        assert (await wire.read_answer()).status == 200
        refused(await wire.answer(), 400, "/session")
        await wire.writer.drain()
        assert await wire.reader.read() == b""


@limited(unread=SHORT)
async def test_a_body_that_no_handler_reads_has_a_deadline(system: System) -> None:
    async with Wire(system.port) as wire:
        wire.send(b"POST /session HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
        refused(await wire.answer(), 401, "/session")
        assert await wire.ends() == b""


async def test_an_error_before_the_application_is_documented(
    system: System, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*_: object) -> None:
        raise RuntimeError("as scripted")

    async with Wire(system.port) as wire:
        with monkeypatch.context() as patched:
            patched.setattr(Application, "answer", fails)
            wire.send(HEALTH)
            answer = await wire.read_answer()
        assert await wire.ends() == b""
    assert answer.status == 500
    assert answer.json["details"] == "the server's log has the cause"
    assert "as scripted" in caplog.text


async def test_an_idle_connection_ends_with_the_server(system: System) -> None:
    async with Wire(system.port) as wire:
        await ask_health(wire)
        await system.stop_serving()
        assert await wire.ends() == b""


async def test_requests_do_not_share_the_fields_of_their_log_lines(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "controlplane.http")
    async with Wire(system.port) as wire:
        wire.send(head_of(system, "GET /session/x") + b"GET /session HTTP/1.1\r\nHost: a\r\n\r\n")
        refused(await wire.answer(), 404, "/session/x")
        refused(await wire.answer(), 401, "/session")
    messages = [cast("Any", record.msg) for record in caplog.records]
    [first, second] = [message for message in messages if "status" in message]
    assert first["account"] == "alice"
    assert "account" not in second
