"""GET /event as a stream, in both forms."""

import pytest

from controlplane.api.operations import event_streams
from tests.support.controlplane.event_reader import (
    NDJSON,
    SSE,
    Frame,
    opened,
    reserve,
)
from tests.support.controlplane.system import System, eventually_equals

both_forms = pytest.mark.parametrize("form", [SSE, NDJSON])


@both_forms
async def test_stream_begins_with_events_that_are_to_come(system: System, form: str) -> None:
    await reserve(system, "before")
    async with opened(system, form=form) as reader:
        await reserve(system, "a")
        await reserve(system, "b", "c")
        assert await reader.objects(3) == ["a", "b", "c"]


async def test_event_has_id_type_and_data(system: System) -> None:
    async with opened(system) as reader:
        await reserve(system, "a")
        frame = await reader.frame()
    assert frame is not None
    [event] = (await system.read("/event?session=a"))["events"]
    assert frame.id == event["id"]
    assert frame.event == "session.starting"
    assert frame.data == event


async def test_line_is_an_event(system: System) -> None:
    async with opened(system, form=NDJSON) as reader:
        await reserve(system, "a")
        assert [await reader.json()] == (await system.read("/event?session=a"))["events"]


@both_forms
async def test_stream_goes_on_after_an_id(system: System, form: str) -> None:
    await reserve(system, "a", "b", "c")
    [event] = (await system.read("/event?session=a"))["events"]
    for more in ({"query": f"after={event['id']}"}, {"last_id": event["id"]}):
        async with opened(system, form=form, **more) as reader:
            assert await reader.objects(2) == ["b", "c"]


async def test_header_counts_before_the_query(system: System) -> None:
    """An EventSource that connects again sends the query of its first request."""
    await reserve(system, "a", "b")
    ids = [event["id"] for event in (await system.read("/event?kind=session.*"))["events"]]
    async with opened(system, f"after={ids[0]}", last_id=ids[1]) as reader:
        await reserve(system, "c")
        assert await reader.objects(1) == ["c"]


@both_forms
async def test_stream_without_following_ends_with_the_newest(system: System, form: str) -> None:
    await reserve(system, "a", "b")
    async with opened(system, "follow=false&kind=session.*", form=form) as reader:
        assert await reader.objects(2) == ["a", "b"]
        end = (await reader.frames())[-1].data if form == SSE else (await reader.lines())[-1]
    assert end["type"] == "stream.end"
    assert end["why"] == "newest"
    assert end["id"] == str(await system.control_plane.event_log.newest())


async def test_only_what_the_filter_chooses_is_sent(system: System) -> None:
    async with opened(system, "session=b") as reader:
        await reserve(system, "x", account="bob")
        await reserve(system, "a")
        await reserve(system, "b")
        assert await reader.objects(1) == ["b"]


async def test_operators_follow_all_accounts(system: System) -> None:
    async with opened(system, "kind=session.*", path="/operator/event") as reader:
        await reserve(system, "x", account="bob")
        await reserve(system, "a")
        assert await reader.objects(2) == ["x", "a"]


async def test_many_stored_events_are_sent_in_order(system: System) -> None:
    names = [str(number) for number in range(1500)]
    start = await system.control_plane.event_log.newest()
    await reserve(system, *names)
    async with opened(system, f"after={start}") as reader:
        assert await reader.objects(len(names)) == names


async def test_quiet_stream_sends_its_position(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "QUIET", 0.05)
    async with opened(system) as reader, opened(system, form=NDJSON) as lines:
        await reserve(system, "x", account="bob")
        newest = str(await system.control_plane.event_log.newest())
        position = {"id": newest, "type": "stream.position"}
        expected = Frame(newest, "stream.position", position, comment="quiet")
        await eventually_equals(reader.frame, expected)
        await eventually_equals(lines.json, position)
