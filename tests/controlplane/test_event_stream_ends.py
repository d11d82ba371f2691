"""How streams of events end, and go on."""

import asyncio
import logging
from typing import Any

import pytest
from aiohttp import ClientPayloadError, web

from controlplane.api.operations import event_streams
from controlplane.domain.errors import StoreError
from controlplane.domain.events.positions import EventsGoneError, Position
from controlplane.events.event_log import EventLog
from controlplane.http.application import Application
from controlplane.http.messages import Request
from controlplane.storage.engine.event_log import begin_epoch, position
from controlplane.storage.tables.accounting.event_reading import read_after, read_newer
from tests.support.controlplane.event_reader import (
    NDJSON,
    SSE,
    ended,
    is_free,
    opened,
    reading,
    reserve,
)
from tests.support.controlplane.raw_http import Wire
from tests.support.controlplane.scrapes import Scraped
from tests.support.controlplane.system import System, assert_error, eventually, token_id
from tests.support.controlplane.transactions import fail_once, intercept

both_forms = pytest.mark.parametrize("form", [SSE, NDJSON])


@both_forms
async def test_revoked_token_ends_its_streams(system: System, form: str) -> None:
    token = await system.make_token(name="n", scopes=["event:read"])
    sessions = "kind=session.*"
    async with (
        opened(system, form=form, token=token) as reader,
        opened(system, sessions) as other,
    ):
        await system.call("DELETE", f"/operator/token/{token_id(token)}")
        end = await ended(reader, form)
        assert end["why"] == "token"
        await reserve(system, "a")
        assert await other.objects(1) == ["a"]
    async with reading(system, form=form, token=token, last_id=end["id"]) as reader:
        assert reader.response.status == 401


@both_forms
async def test_shutdown_ends_streams_which_connect_again(system: System, form: str) -> None:
    async with opened(system, form=form) as reader:
        await reserve(system, "a")
        assert await reader.objects(1) == ["a"]
        stopping = asyncio.create_task(system.stop_serving())
        end = await ended(reader, form)
        await stopping
    assert end["type"] == "stream.end"
    assert end["why"] == "shutdown"
    if form == SSE:
        assert 1000 <= end["retry"] <= 5000


@both_forms
async def test_stream_goes_on_after_a_restart(system: System, form: str) -> None:
    async with opened(system, form=form) as reader:
        await reserve(system, "a")
        assert await reader.objects(1) == ["a"]
        restarting = asyncio.create_task(system.restart())
        end = await ended(reader, form)
        await restarting
    await reserve(system, "b")
    async with opened(system, form=form, last_id=end["id"]) as reader:
        await reserve(system, "c")
        assert await reader.objects(2) == ["b", "c"]


@pytest.mark.system(max_event_streams_per_token=1)
async def test_streams_of_a_token_are_limited(system: System) -> None:
    other = await system.make_token(name="n", scopes=["event:read"])
    async with opened(system):
        async with opened(system, token=other):
            headers = {"Accept": NDJSON}
            answer = await system.call("GET", "/event", headers=headers)
            assert_error(answer, 429, details="this token")
            assert answer.headers["Retry-After"] == "5"
        async with reading(system) as refused:
            assert refused.response.status == 200
            retry, end = await refused.frames()
        assert retry.retry == 5000
        assert end.event == "stream.end"
        assert end.id is None
        assert end.data["why"] == "too_many_streams"
        await system.read("/event")
    await eventually(lambda: is_free(system))
    async with opened(system):
        pass


@pytest.mark.system(max_event_streams=4)
async def test_account_has_a_share_of_the_streams(system: System) -> None:
    headers = {"Accept": NDJSON}
    async with opened(system), opened(system):
        answer = await system.call("GET", "/event", headers=headers)
        assert_error(answer, 429, details="this account")
        async with opened(system, token=system.tokens["bob"]):
            pass


@both_forms
async def test_restored_database_has_a_gap(system: System, form: str) -> None:
    await reserve(system, "a")
    before = await system.control_plane.event_log.newest()
    await system.control_plane.store.run(begin_epoch, system.clock.time())
    newest = await system.control_plane.store.read(position)
    assert newest.epoch > before.epoch
    answer = await system.call("GET", f"/event?after={before}")
    resume = assert_error(answer, 410).json["resume"]
    async with opened(system, "kind=session.*", form=form, last_id=resume) as reader:
        assert await reader.objects(1) == ["a"]


@both_forms
async def test_stream_that_falls_behind_retention_ends_with_the_gap(
    system: System, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    gone = EventsGoneError(Position(1, 1), Position(1, 5), Position(1, 7))
    async with opened(system, form=form) as reader:

        async def fail(*_: object) -> None:
            raise gone

        monkeypatch.setattr(EventLog, "read", fail)
        await reserve(system, "a")
        end = await ended(reader, form)
    assert end["type"] == "stream.gap"
    assert end["id"] == "1-5"
    assert end["oldest"] == "1-7"


@both_forms
async def test_database_that_fails_ends_streams_which_connect_again(
    system: System, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    async with opened(system, form=form) as reader:

        async def fail(*_: object) -> None:
            raise StoreError("as scripted")

        monkeypatch.setattr(EventLog, "read", fail)
        await reserve(system, "a")
        end = await ended(reader, form)
    assert end["why"] == "failure"


async def test_event_source_connects_again_after_a_failure_at_its_begin(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    intercept(monkeypatch, read_after, fail_once(StoreError("as scripted")))
    async with reading(system, "after=1-0") as reader:
        retry, end = await reader.frames()
    assert retry.retry is not None
    assert end.id is None
    assert end.data["why"] == "service_unavailable"
    assert end.data["error"]["statusCode"] == 503


async def test_unexpected_error_breaks_the_stream_off(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(system) as reader:

        async def fail(*_: object) -> None:
            raise ValueError("as scripted")

        monkeypatch.setattr(EventLog, "read", fail)
        await reserve(system, "a")
        with pytest.raises(ClientPayloadError):
            await reader.frames()


async def test_one_read_of_new_events_serves_all_streams(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(system) as one, opened(system, form=NDJSON) as other:
        log = system.control_plane.event_log
        await eventually(lambda: log.waiting("alice") == 2)
        reads: list[object] = []

        async def count(go: Any) -> Any:
            reads.append(1)
            return await go()

        intercept(monkeypatch, read_after, count)
        intercept(monkeypatch, read_newer, count)
        await reserve(system, "a")
        assert await one.objects(1) == ["a"]
        assert await other.objects(1) == ["a"]
        assert len(reads) == 1


async def test_slow_reader_is_closed_and_goes_on(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "TAKE_WAIT", 0.2)
    start = await system.control_plane.event_log.newest()
    names = [f"{number}-{'x' * 200}" for number in range(20_000)]
    await reserve(system, *names)
    ended_as_slow = system.control_plane.services.event_metrics.ended.labels("slow")
    token = system.tokens["alice"]
    head = f"GET /event?after={start} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
    async with Wire(system.port) as wire:
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        wire.send(f"{head}Accept: {SSE}\r\n\r\n".encode())
        await eventually(lambda: ended_as_slow.value == 1)
        await eventually(lambda: is_free(system))
    async with opened(system, f"after={start}") as reader:
        assert await reader.objects(len(names)) == names


@both_forms
async def test_disconnected_reader_frees_its_slot(system: System, form: str) -> None:
    async with opened(system, form=form) as reader:
        reader.response.close()
        await eventually(lambda: is_free(system))
    assert system.control_plane.event_log.waiting("alice") == 0


@both_forms
@pytest.mark.system(kind=Scraped)
async def test_write_to_a_reader_that_has_just_disconnected_is_no_error(
    system: Scraped, form: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server writes after the connection has failed and before the request is cancelled."""
    answer = Application.answer
    changed = EventLog.changed
    requests: list[Request] = []

    async def noted(self: Application, request: Request) -> web.StreamResponse:
        if request.path == "/event":
            requests.append(request)
        return await answer(self, request)

    async def disconnected(self: EventLog, *arguments: Any) -> Position:
        found = await changed(self, *arguments)
        for request in requests:
            if request.transport is not None:
                request.transport.abort()
        return found

    monkeypatch.setattr(event_streams, "QUIET", 0.05)
    monkeypatch.setattr(Application, "answer", noted)
    monkeypatch.setattr(EventLog, "changed", disconnected)
    async with opened(system, form=form):
        await system.shows(lambda s: s.sum("http_requests_total", status="499") == 1)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert (await system.scrape()).sum("event_streams_ended_total", why="client") == 1


@pytest.mark.system(kind=Scraped)
async def test_streams_are_counted(system: Scraped) -> None:
    async with opened(system) as one, opened(system, form=NDJSON) as other:
        await reserve(system, "a", "b")
        await one.objects(2)
        await other.objects(2)
        found = await system.scrape()
        for form in ("sse", "ndjson"):
            assert found.sum("event_streams", form=form) == 1
            assert found.sum("event_stream_events_total", form=form) == 2
        assert found.sum("event_read_after_seconds_count") == 1
        assert found.sum("event_sent_after_seconds_count") == 2
    await eventually(lambda: is_free(system))
    await system.call("GET", "/event?after=9-9")
    found = await system.scrape()
    assert found.sum("event_streams") == 0
    assert found.sum("event_streams_ended_total", why="client") == 2
    assert found.sum("event_gaps_total") == 1
