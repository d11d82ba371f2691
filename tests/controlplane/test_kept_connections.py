"""Reads and joins over connections that are kept: tokens, order, callers that hang up."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import pytest

from controlplane.access.accounts import LAST_USED_STEP
from controlplane.admission.request_slots import RequestSlots
from tests.support.controlplane.raw_http import RawAnswer, Wire
from tests.support.controlplane.scrapes import Scraped
from tests.support.controlplane.system import eventually_equals, token_id
from tests.support.controlplane.transactions import blocked
from tests.support.controlplane.waits import until_requests_are_awaited
from tests.support.fake_clock import AheadClock

GET = "GET /session/m"
JOIN = "PUT /session/player/join"
PLAYERS = "SELECT player FROM player ORDER BY sequence"


class Watched(Scraped):
    """A system with two request slots per account, and a clock that can be moved ahead."""

    clock: AheadClock

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.clock = AheadClock()
        self.parts["request_slots"] = RequestSlots(self.clock, at_once=2)

    def request(self, call: str, *more: str, token: str = "", body: str = "") -> bytes:
        bearer = f"Authorization: Bearer {token or self.tokens['alice']}"
        length = [f"Content-Length: {len(body)}"] if body else []
        head = [f"{call} HTTP/1.1", "Host: a", bearer, *length, *more]
        return "\r\n".join([*head, "", body]).encode()

    async def ask(self, wire: Wire, call: str, *more: str, **parts: str) -> RawAnswer:
        wire.send(self.request(call, *more, **parts))
        return await wire.read_answer()

    def busy(self) -> AbstractAsyncContextManager[object]:
        """Hold the thread that commits."""
        return blocked(self.control_plane.store.run)

    async def column(self, sql: str) -> list[Any]:
        """Read a column outside of transactions, which drop what is known of tokens."""
        rows = await self.control_plane.store.read(lambda db: db.execute(sql).fetchall())
        return [row[0] for row in rows]


def joining(player: str, session: str = "m") -> str:
    return f'{{"session": "{session}", "players": ["{player}"]}}'


pytestmark = pytest.mark.system(kind=Watched, application={}, session="m")


@pytest.fixture
async def wire(system: Watched) -> AsyncIterator[Wire]:
    """Have a connection whose token is known."""
    async with Wire(system.port) as wire:
        assert (await system.ask(wire, GET)).status == 200
        yield wire


async def test_requests_are_logged_at_level_debug(
    system: Watched, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await system.ask(wire, GET)
    assert "request answered method=GET path=/session/m status=200" in caplog.text


async def test_revoked_and_expired_tokens_are_refused_at_once(system: Watched, wire: Wire) -> None:
    scopes = ["session:read"]
    revoked = await system.make_token(name="revoked", scopes=scopes)
    expiring = await system.make_token(name="expiring", scopes=scopes, expires_after="1m")
    other = await system.make_token(name="other", scopes=["logs:read"])
    for token, status in ((revoked, 200), (expiring, 200), (other, 403)):
        for _ in range(2):
            assert (await system.ask(wire, GET, token=token)).status == status
    await system.call("DELETE", f"/operator/token/{token_id(revoked)}")
    assert (await system.ask(wire, GET, token=revoked)).status == 401
    system.clock.wall_ahead = 60.0
    assert (await system.ask(wire, GET, token=expiring)).status == 401


async def test_use_of_a_token_is_noted_again(system: Watched, wire: Wire) -> None:
    sql = "SELECT last_used_ms FROM token WHERE account='alice'"
    (first,) = await system.column(sql)
    system.clock.wall_ahead = LAST_USED_STEP
    await system.ask(wire, GET)
    (last,) = await system.column(sql)
    assert last >= first + LAST_USED_STEP * 1000


async def test_requests_behind_others_are_answered_in_order(system: Watched, wire: Wire) -> None:
    get = system.request(GET)
    wire.send(get + system.request(JOIN, body=joining("p")) + get)
    assert (await wire.read_answer()).json["players"]["joined"] == []
    assert (await wire.read_answer()).json["players"] == ["p"]
    assert (await wire.read_answer()).json["players"]["joined"] == ["p"]
    async with system.busy():
        wire.send(system.request(JOIN, body=joining("q")))
        await eventually_equals(lambda: in_progress(system), 1)
        wire.send(get)
        await system.scrape()
    assert (await wire.read_answer()).json["players"] == ["p", "q"]
    described = (await wire.read_answer()).json["players"]
    assert described == {"joined": ["p", "q"], "joinedCount": 2}


async def test_join_of_a_caller_that_hangs_up_is_counted_as_499(system: Watched) -> None:
    async with Wire(system.port) as wire:
        assert (await system.ask(wire, GET)).status == 200
        connected = (await system.scrape()).sum("http_connections", listener="api")
        async with system.busy():
            wire.send(system.request(JOIN, body=joining("p")))
            await eventually_equals(lambda: in_progress(system), 1)
            wire.writer.transport.abort()
            await system.shows(lambda s: s.sum("http_connections", listener="api") < connected)
    await system.shows(lambda s: s.sum("http_requests_total", status="499") == 1)
    assert await in_progress(system) == 0
    assert await system.column(PLAYERS) == ["p"]


async def test_request_that_waits_for_a_slot_leaves_when_its_caller_hangs_up(
    system: Watched, wire: Wire
) -> None:
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(Wire(system.port)) for _ in range(5)]
        async with system.busy():
            for number, waiting in enumerate(wires, start=1):
                waiting.send(system.request(JOIN, body=joining(f"p{number}")))
                await eventually_equals(lambda: in_progress(system), number)
            wires[3].writer.transport.abort()
            await system.shows(lambda s: s.sum("http_requests_total", status="499") == 1)
        del wires[3]
        for waiting in wires:
            assert (await waiting.read_answer()).status == 200
    assert await system.column(PLAYERS) == ["p1", "p2", "p3", "p5"]
    assert await in_progress(system) == 0


async def test_join_is_answered_during_a_shutdown(system: Watched, wire: Wire) -> None:
    async with system.busy():
        wire.send(system.request(JOIN, body=joining("p")))
        await eventually_equals(lambda: in_progress(system), 1)
        stopping = asyncio.create_task(system.stop_serving())
        await until_requests_are_awaited(system)
    assert (await wire.read_answer()).json["players"] == ["p"]
    assert await wire.ends() == b""
    await stopping


async def in_progress(system: Watched) -> float:
    return (await system.scrape()).sum("http_requests_in_progress")
