"""Requests whose callers hang up: their work continues, and counts until it ends."""

import asyncio
import logging
from typing import Any

import pytest

from tests.support.controlplane.raw_http import Wire
from tests.support.controlplane.scrapes import Scraped
from tests.support.controlplane.system import eventually_equals
from tests.support.controlplane.transactions import blocked, opened
from tests.support.controlplane.waits import until_requests_are_awaited
from tests.support.hold import Hold

pytestmark = pytest.mark.system(kind=Scraped, application={})


async def connections(system: Scraped) -> float:
    return (await system.scrape()).sum("http_connections", listener="api")


async def abandoned_start(system: Scraped) -> Hold:
    """Hang up during a start; return the gate at which its host waits."""
    start, gate = await system.held_start(id="s")
    connected = await connections(system)
    start.cancel()
    await asyncio.wait({start})
    await eventually_equals(lambda: connections(system), connected - 1)
    return gate


async def free_places(system: Scraped) -> int:
    """Connect until a connection is refused; return the number of the others."""
    wires: list[Wire] = []
    try:
        while True:
            wire = await Wire(system.port).__aenter__()
            wires.append(wire)
            wire.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            if not await wire.reader.read(1):
                return len(wires) - 1
    finally:
        for wire in wires:
            await wire.__aexit__(None, None, None)


async def test_shutdown_waits_for_an_abandoned_start(system: Scraped) -> None:
    gate = await abandoned_start(system)
    stopping = asyncio.create_task(system.stop_serving())
    await until_requests_are_awaited(system)
    gate.set()
    await stopping
    async with opened(system.config.database) as store:
        sql = "SELECT confirmed FROM session"
        assert await store.read(lambda db: db.execute(sql).fetchall()) == [(1,)]


@pytest.mark.system(kind=Scraped, application={}, max_connections=6)
async def test_abandoned_start_keeps_the_place_of_its_connection(system: Scraped) -> None:
    gate = await abandoned_start(system)
    assert (await system.call("GET", "/healthz")).status == 200  # over a connection that is kept
    assert await free_places(system) == 4  # Without that one and the place of the start
    gate.set()
    await system.becomes("s", "running")
    await eventually_equals(lambda: free_places(system), 5)


async def test_caller_that_hangs_up_before_the_end_of_its_body_is_no_error(
    system: Scraped, caplog: pytest.LogCaptureFixture
) -> None:
    bearer = f"Authorization: Bearer {system.tokens['alice']}"
    async with Wire(system.port) as wire:
        head = f"POST /session HTTP/1.1\r\nHost: a\r\n{bearer}\r\nContent-Length: 9\r\n\r\n"
        wire.send(head.encode() + b"{")
        await eventually_equals(lambda: in_progress(system), 1)
        wire.writer.transport.abort()
        await system.shows(lambda s: s.sum("http_requests_total", status="499") == 1)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert await in_progress(system) == 0


async def in_progress(system: Scraped) -> float:
    return (await system.scrape()).sum("http_requests_in_progress")


async def make_long_list(system: Scraped, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a list of sessions that is longer than all buffers."""
    monkeypatch.setattr("controlplane.api.operations.operation.AT_ONCE", 1)
    for name in ("m", "n", "o"):
        assert (await system.start(id=name)).status == 201
    labels = '{"more than all buffers hold": "' + "x" * 2**24 + '"}'

    def fill(db: Any) -> None:
        db.execute("UPDATE session SET labels=?", (labels,))

    await system.control_plane.store.run(fill)


def ask_for_list(system: Scraped, wire: Wire) -> None:
    bearer = f"Authorization: Bearer {system.tokens['alice']}"
    wire.send(f"GET /session HTTP/1.1\r\nHost: x\r\n{bearer}\r\n\r\n".encode())


async def test_reader_of_a_list_that_hangs_up_ends_it(
    system: Scraped, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await make_long_list(system, monkeypatch)
    async with Wire(system.port) as wire:
        ask_for_list(system, wire)
        await wire.reader.readuntil(b"\r\n\r\n")
        assert await in_progress(system) == 1
        wire.writer.transport.abort()
        await system.shows(lambda s: s.sum("http_requests_total", status="499") == 1)
    # The request was counted after its handler, and so any abort, had ended.
    assert "response aborted" not in caplog.text


async def test_reader_that_hangs_up_before_a_list_begins_is_no_error(
    system: Scraped, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await make_long_list(system, monkeypatch)
    connected = await connections(system)
    async with blocked(system.control_plane.store.read), Wire(system.port) as wire:
        ask_for_list(system, wire)
        await eventually_equals(lambda: in_progress(system), 1)
        wire.writer.transport.abort()
        await eventually_equals(lambda: connections(system), connected)
    await system.shows(lambda s: s.sum("http_requests_total", status="499") == 1)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
