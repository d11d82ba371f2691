"""GET /event and GET /operator/event: pages, filters, and who sees what."""

from typing import Any

import pytest

from controlplane.domain.events.kinds import KINDS
from controlplane.storage.tables.accounting.event_retention import remove_old
from tests.support.controlplane.event_reader import CALLER, NDJSON, SSE, reading, reserve
from tests.support.controlplane.system import System, assert_error, token_id

DAY = 86_400.0
FORMS = ["application/json", NDJSON, SSE]


async def page(system: System, query: str = "", **more: Any) -> Any:
    return await system.read(f"/event?{query}", **more)


def objects(found: Any) -> list[str]:
    return [event["object"] for event in found["events"]]


async def newest(system: System) -> str:
    """The id after which nothing was appended yet."""
    return str(await system.control_plane.event_log.newest())


async def test_pages_have_events_in_order_from_the_oldest_on(system: System) -> None:
    await reserve(system, "a", "b", "c")
    first = await page(system, "kind=session.*&limit=2")
    assert objects(first) == ["a", "b"]
    assert first["more"] is True
    assert first["after"] == first["events"][-1]["id"]
    second = await page(system, f"kind=session.*&limit=2&after={first['after']}")
    assert objects(second) == ["c"]
    assert second["more"] is False
    assert second["after"] == await newest(system)
    last = await page(system, f"after={second['after']}")
    assert last == {"events": [], "after": second["after"], "more": False}


async def test_event_has_its_fields(system: System) -> None:
    await reserve(system, "a")
    [event] = (await page(system, "session=a"))["events"]
    time = event.pop("time")
    assert abs(time / 1000 - system.clock.time()) < DAY
    number = (await newest(system)).partition("-")[2]
    assert event == {
        "id": f"1-{number}",
        "type": "session.starting",
        "version": 1,
        "account": "alice",
        "object": "a",
        "actor": CALLER.name,
        "data": event["data"],
    }


async def test_operators_see_all_accounts_and_addresses(system: System) -> None:
    await reserve(system, "a")
    await reserve(system, "b", account="bob")
    found = await system.read("/operator/event?kind=session.*")
    assert objects(found) == ["a", "b"]
    assert {event["address"] for event in found["events"]} == {CALLER.address}
    assert objects(await system.read("/operator/event?kind=session.*&account=bob")) == ["b"]


async def test_account_sees_neither_others_events_nor_operators(system: System) -> None:
    await system.call("PUT", "/operator/region/third")
    new = {"account": "alice", "name": "n", "scopes": ["event:read"]}
    made = await system.call("POST", "/operator/token", json=new)
    await reserve(system, "b", account="bob")
    answer = await system.call("GET", "/event")
    assert {event["account"] for event in answer.json["events"]} == {"alice"}
    assert made.status == 201, made.text
    actors = {event["object"]: event["actor"] for event in answer.json["events"]}
    assert actors[token_id(made.json["token"])] == "operator"
    assert actors["alice"] == "controlplane"
    assert system.operator_id not in answer.text
    assert "127.0.0.1" not in answer.text


async def test_sessions_are_reported_as_they_start_and_end(system: System) -> None:
    await system.make_application()
    start = await newest(system)
    await system.start(id="s")
    await system.call("DELETE", "/session/s")
    await system.becomes("s", "exited")
    found = await page(system, f"after={start}&session=s")
    kinds = [event["type"] for event in found["events"]]
    assert kinds[0] == "session.starting"
    assert kinds[-1] == "session.ended"
    assert found["events"][0]["actor"] == token_id(system.tokens["alice"])
    assert found["events"][-1]["actor"] == "controlplane"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("kind=session.starting", ["a", "b"]),
        ("kind=session.*", ["a", "b"]),
        ("kind=session.ended,session.starting", ["a", "b"]),
        ("kind=session.ended&kind=session.starting", ["a", "b"]),
        ("kind=session.ended", []),
        ("session=b", ["b"]),
        ("session=b&kind=session.*", ["b"]),
        ("session=none", []),
        ("image=other", ["b"]),
        ("image=other&session=a", []),
        ("image=none", []),
        ("location=local", ["a", "b"]),
        ("location=none", []),
        ("label[mode]=duel", ["a"]),
        ("label[mode]=duel&label[map]=x", ["a"]),
        ("label[mode]=duel&label[map]=y", []),
        ("label[mode]=none", []),
    ],
)
async def test_filters_choose(system: System, query: str, expected: list[str]) -> None:
    await reserve(system, "a", labels={"mode": "duel", "map": "x"})
    await reserve(system, "b", image="other")
    assert objects(await page(system, query)) == expected


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("kind=session", "kind[0]"),
        ("kind=session.*,none.*", "kind[1]"),
        ("kind=", "kind[0]"),
        ("kind=region.*", "kind[0]"),  # operators alone get them
        ("kind=token.*,agent.lost", "kind[1]"),
        ("after=17", "after"),
        ("after=1-17x", "after"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("follow=maybe", "follow"),
        ("label[]=x", "label[]"),
        ("session=", "session"),
    ],
)
async def test_bad_queries_are_refused(system: System, form: str, query: str, field: str) -> None:
    answer = await system.call("GET", f"/event?{query}", headers={"Accept": form})
    assert_error(answer, 422, field)


@pytest.mark.parametrize("form", FORMS)
async def test_bad_last_event_id_is_refused(system: System, form: str) -> None:
    headers = {"Accept": form, "Last-Event-ID": "seventeen"}
    assert_error(await system.call("GET", "/event", headers=headers), 422, "Last-Event-ID")


@pytest.mark.parametrize("form", FORMS)
async def test_tokens_need_the_scope(system: System, form: str) -> None:
    headers = {"Accept": form}
    other = await system.make_token(name="n", scopes=["session:read", "logs:read"])
    answer = await system.call("GET", "/event", headers=headers, token=other)
    assert_error(answer, 403, details="event:read")
    assert_error(await system.call("GET", "/event", headers=headers, token="x"), 401)
    own = system.tokens["alice"]
    answer = await system.call("GET", "/operator/event", headers=headers, token=own)
    assert_error(answer, 403)


@pytest.mark.parametrize("form", FORMS)
async def test_head_has_the_headers_alone(system: System, form: str) -> None:
    answer = await system.call("HEAD", "/event", headers={"Accept": form})
    assert answer.status == 200
    assert answer.headers["Content-Type"].partition(";")[0] == form
    assert answer.body == b""


@pytest.mark.parametrize("form", FORMS)
async def test_no_proxy_or_browser_keeps_or_holds_back_events(system: System, form: str) -> None:
    headers = {"Accept": form, "Accept-Encoding": "gzip, deflate, br"}
    answer = await system.call("GET", "/event?follow=false", headers=headers)
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Content-Encoding" not in answer.headers
    if form != "application/json":
        assert answer.headers["X-Accel-Buffering"] == "no"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("text/html", "application/json"),
        ("text/event-stream;q=0.5, application/x-ndjson", NDJSON),
        ("application/json;q=0.1, text/event-stream;q=0.2", SSE),
    ],
)
async def test_form_is_the_one_that_the_client_prefers(
    system: System, accept: str, form: str
) -> None:
    answer = await system.call("HEAD", "/event", headers={"Accept": accept})
    assert answer.headers["Content-Type"].partition(";")[0] == form


async def remove_events(system: System) -> tuple[str, str]:
    """Let retention remove what is in the log; return an id before that, and one after it."""
    before = "1-0"
    after = await newest(system)
    now = system.clock.time() + 100 * DAY
    await system.control_plane.store.run(remove_old, 0, before=now, now=now)
    return before, after


@pytest.mark.parametrize("form", FORMS[:2])
async def test_events_that_were_removed_are_gone(system: System, form: str) -> None:
    before, after = await remove_events(system)
    await reserve(system, "a")
    for query, sent in ((f"after={before}", ""), ("", before)):
        headers = {"Accept": form, "Last-Event-ID": sent}
        answer = await system.call("GET", f"/event?{query}", headers=headers)
        body = assert_error(answer, 410).json
        assert body["resume"] == after
        assert body["oldest"] == await newest(system)
    assert objects(await page(system, f"after={body['resume']}")) == ["a"]
    assert objects(await page(system)) == ["a"]


async def test_event_source_is_told_of_the_gap_and_goes_on(system: System) -> None:
    before, after = await remove_events(system)
    await reserve(system, "a")
    async with reading(system, last_id=before) as reader:
        assert reader.response.status == 200
        assert reader.response.headers["Content-Type"] == SSE
        retry, gap = await reader.frames()
    assert 1000 <= (retry.retry or 0) <= 5000
    assert gap.event == "stream.gap"
    assert gap.id == after
    assert gap.data["id"] == after
    assert gap.data["oldest"] == await newest(system)
    async with reading(system, last_id=after) as reader:
        assert await reader.objects(1) == ["a"]


async def test_log_without_an_event_left_has_no_oldest(system: System) -> None:
    before, after = await remove_events(system)
    body = assert_error(await system.call("GET", f"/event?after={before}"), 410).json
    assert body["oldest"] is None
    assert body["resume"] == after


def test_topic_of_streams_has_no_events() -> None:
    assert not any(kind.startswith("stream.") for kind in KINDS)
