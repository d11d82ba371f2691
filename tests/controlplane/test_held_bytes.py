"""Bytes of bodies and responses in memory: one account leaves a share to the others."""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import cast

import pytest

from controlplane.admission.request_slots import RequestSlots
from tests.support.controlplane.raw_http import Wire
from tests.support.controlplane.scrapes import Scraped
from tests.support.controlplane.system import assert_error, eventually_equals
from tests.support.controlplane.transactions import blocked

BODY = 100_000  # Bytes
TOTAL = 4 * BODY
ENOUGH = 40  # Bodies of 12,000 bytes: more than the room

pytestmark = pytest.mark.system(kind=Scraped, application={}, session="m")


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.http.listeners.BODIES_BYTES", TOTAL)


async def held(system: Scraped, kind: str = "request") -> float:
    return (await system.scrape()).sum("http_held_bytes", kind=kind)


async def refusals(system: Scraped, kind: str = "request") -> float:
    return (await system.scrape()).sum("http_held_refusals_total", kind=kind)


def head(system: Scraped, framing: str, account: str = "alice") -> bytes:
    bearer = f"Authorization: Bearer {system.tokens[account]}"
    lines = ("POST /session HTTP/1.1", "Host: a", bearer, framing, "", "")
    return "\r\n".join(lines).encode()


async def test_unfinished_bodies_take_half_of_the_room_at_most(system: Scraped) -> None:
    declared = f"Content-Length: {BODY}"
    async with Wire(system.port) as first, Wire(system.port) as second:
        for wire in (first, second):
            wire.send(head(system, declared) + b"{")
        await eventually_equals(lambda: held(system), 2 * BODY)
        for _ in range(3):
            async with Wire(system.port) as third:
                third.send(head(system, declared) + b"{")
                refused = await third.read_answer()
            assert refused.status == 503
            message = refused.json["message"]
            assert message == "too many bytes in the request bodies of this account"
            assert refused.headers["retry-after"] == "1"
        assert await held(system) == 2 * BODY
        assert await refusals(system) == 3

        labels = {"k": "x" * 60_000}
        assert_error(await system.start(id="n", labels=labels), 503)
        assert (await system.start(id="small")).status == 201
        await system.make_application(account="bob")
        assert (await system.start(account="bob", labels=labels)).status == 201
    await eventually_equals(lambda: held(system), 0)
    assert (await system.start(id="n", labels=labels)).status == 201


async def test_body_of_unknown_length_counts_as_it_arrives(system: Scraped) -> None:
    async with Wire(system.port) as wire:
        wire.send(head(system, "Transfer-Encoding: chunked"))
        for number in range(1, 20):
            wire.send(b"2710\r\n" + b" " * 10_000 + b"\r\n")
            await eventually_equals(partial(held, system), number * 10_000)
        wire.send(b"9c40\r\n" + b" " * 40_000 + b"\r\n")
        assert (await wire.read_answer()).status == 503
    await eventually_equals(lambda: held(system), 0)


async def test_bodies_that_wait_for_a_request_slot_count(system: Scraped) -> None:
    system.parts["request_slots"] = RequestSlots(system.clock, at_once=1)
    await system.restart()
    names = [f"{number}" for number in range(100)]
    async with blocked(system.control_plane.store.run, lambda _: None):
        waiting = [asyncio.create_task(system.join(*names, "x" * 200)) for _ in range(2)]
        bodies = [
            asyncio.create_task(system.start(id=f"s{n}", labels={"k": "x" * 12_000}))
            for n in range(ENOUGH)
        ]
        done, _ = await asyncio.wait(bodies, return_when="FIRST_COMPLETED")
        assert done.pop().result().status == 503
        assert await held(system) <= TOTAL / 2 + 13_000  # and half of one more
    await asyncio.gather(*waiting, *bodies)
    assert await held(system) == 0


async def test_body_of_a_start_counts_until_its_end_even_without_its_client(
    system: Scraped,
) -> None:
    start, hold = await system.held_start(id="n", labels={"k": "x" * 60_000})
    size = await held(system)
    assert size > 60_000
    connected = await connections(system)
    start.cancel()
    await eventually_equals(lambda: connections(system), connected - 1)
    assert await held(system) == size
    hold.set()
    await eventually_equals(lambda: held(system), 0)


async def connections(system: Scraped) -> float:
    return (await system.scrape()).sum("http_connections", listener="api")


async def test_body_counts_while_its_transaction_waits_even_without_its_client(
    system: Scraped,
) -> None:
    async with blocked(system.control_plane.store.run, lambda _: None):
        join = asyncio.create_task(system.join(*(f"{n:0200}" for n in range(300))))
        await eventually_equals(lambda: waiting_transactions(system), 1)
        size = await held(system)
        assert size > 60_000
        connected = await connections(system)
        join.cancel()
        await eventually_equals(lambda: connections(system), connected - 1)
        assert await held(system) == size
    await eventually_equals(lambda: held(system), 0)


async def waiting_transactions(system: Scraped) -> float:
    return (await system.scrape()).sum("database_waiting_transactions")


async def test_no_body_is_read_before_the_token_is_checked(system: Scraped) -> None:
    async with Wire(system.port) as wire:
        wire.send(b"POST /session HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n{")
        assert (await wire.read_answer()).status == 401
        assert await held(system) == 0


@pytest.mark.parametrize("size", [30_000, 60_000])
@pytest.mark.parametrize("earlier", [b"", b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"])
async def test_head_of_a_request_is_bounded_in_all(
    system: Scraped, size: int, earlier: bytes
) -> None:
    fields = b"".join(b"X%d: %s\r\n" % (number, b"a" * 1000) for number in range(size // 1000))
    async with Wire(system.port) as wire:
        if earlier:
            wire.send(earlier)
            assert (await wire.read_answer()).status == 200
        wire.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n" + fields + b"\r\n")
        answer = await wire.read_answer()
    assert answer.status == (431 if size > 32_768 else 200)


async def test_head_without_an_end_is_bounded(system: Scraped) -> None:
    fields = b"".join(b"X%d: %s\r\n" % (number, b"a" * 1000) for number in range(40))
    async with Wire(system.port) as wire:
        wire.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n" + fields)
        assert (await wire.read_answer()).status == 431


async def test_body_is_not_taken_for_a_head(system: Scraped) -> None:
    labels = {"k": "x" * 60_000}
    assert (await system.start(id="n", labels=labels)).status == 201
    async with Wire(system.port) as wire:
        wire.send(b"POST /session HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
        assert (await wire.read_answer()).status == 401
        for _ in range(10):
            wire.send(b"x" * 100_000)
        wire.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await wire.read_answer()).status == 200


@pytest.mark.parametrize(
    ("size", "answers"),
    [
        (10_000, 1),
        (500, 32),
    ],
)
async def test_long_bodies_behind_a_request_in_progress_end_the_connection(
    system: Scraped, size: int, answers: int
) -> None:
    first = b'{"session": "m", "players": ["a"]}'
    framing = f"Content-Length: {len(first)}\r\nX-Forwarded-For: 1.1.1.1"
    join = head(system, framing).replace(b"POST /session", b"PUT /session/player/join")
    later = head(system, f"Content-Length: {size}") + b" " * size
    async with Wire(system.port) as wire:
        async with blocked(system.control_plane.store.run, lambda _: None):
            wire.send(join + first + later * 31)
            await eventually_equals(lambda: waiting_transactions(system), 1)
        assert (await wire.read_answer()).status == 200
        for _ in range(answers - 1):
            assert (await wire.read_answer()).status == 422
        if answers == 1:
            assert await wire.ends() == b""


class Flood:
    """An endless log."""

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield bytes(2**18)


async def test_unread_responses_take_half_of_the_room_at_most(
    system: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    mebibyte = 2**20
    monkeypatch.setattr("controlplane.http.output_watch.SOURCE", mebibyte)
    monkeypatch.setattr("controlplane.http.listeners.RESPONSES_BYTES", 2.6 * mebibyte)
    await system.restart()
    await system.make_application(account="bob")
    assert (await system.start(account="bob", id="m")).status == 201
    system.agent.logs = Flood()  # type: ignore[assignment]

    def follow(wire: Wire, account: str) -> None:
        transport = cast("asyncio.Transport", wire.writer.transport)
        transport.pause_reading()
        wire.send(head(system, "X: y", account).replace(b"POST /session", b"GET /logs?id=m"))

    async with Wire(system.port) as one, Wire(system.port) as two, Wire(system.port) as other:
        follow(one, "alice")
        await eventually_equals(lambda: is_between(system, 1, 1.3), True)
        follow(two, "alice")
        await eventually_equals(lambda: refusals(system, "response"), 1)
        follow(other, "bob")
        await eventually_equals(lambda: is_between(system, 2, 2.6), True)
        assert await refusals(system, "response") == 1
    await eventually_equals(lambda: held(system, "response"), 0)


async def is_between(system: Scraped, least: float, most: float) -> bool:
    return least * 2**20 < await held(system, "response") <= most * 2**20
