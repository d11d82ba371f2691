"""The conditions of hosts: each change is one event, also after restarts."""

import json
from dataclasses import replace
from typing import Any

import pytest

from controlplane.domain.access.audit import Actor
from controlplane.domain.hosts.conditions import Avoidance, HostConditions
from controlplane.domain.hosts.contract import Drain
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.hosts import conditions
from controlplane.storage.tables.hosts.conditions import note_conditions, note_draining
from controlplane.storage.tables.hosts.fleet import get_agent, learn_drain, order_drain
from tests.unit.controlplane.storage.tables.sessions.test_claims import rows
from tests.unit.controlplane.storage.tables.sessions.test_reports import X, report
from tiltyard.contract import State

FINE = HostConditions()
FULL = HostConditions(is_disk_full=True)
EMPTY = HostConditions(is_empty=True)
DRAIN = Drain(3, True, 50.0)


async def kinds(store: Store) -> list[Any]:
    sql = "SELECT kind FROM event WHERE kind NOT LIKE 'session.ru%' ORDER BY sequence"
    return [kind for (kind,) in await rows(store, sql)]


async def note(store: Store, *seen: HostConditions, now: float = 9.0) -> None:
    for each in seen:
        await store.run(note_conditions, {"h": each}, now)


async def test_full_disk_is_an_event_once_until_it_has_space(store: Store) -> None:
    await note(store, FINE, FULL, FULL, FINE, FINE, FULL)
    assert await kinds(store) == ["agent.disk_full", "agent.disk_free", "agent.disk_full"]
    agent = await store.look(get_agent, "h")
    assert agent.conditions == FULL


async def test_host_without_sessions_is_an_event_once_for_each_drain(store: Store) -> None:
    await note(store, EMPTY, EMPTY, FINE, EMPTY)
    assert await kinds(store) == ["agent.empty", "agent.empty"]


async def test_conditions_of_several_hosts_are_written_together(store: Store) -> None:
    await store.run(note_conditions, {"h": FULL, "g": EMPTY, "unknown": FULL}, 9.0)
    found = await rows(store, "SELECT kind, object FROM event ORDER BY sequence")
    assert found == [("agent.disk_full", "h"), ("agent.empty", "g")]


async def test_avoidance_that_goes_on_is_one_event(store: Store) -> None:
    first = HostConditions(avoidance=Avoidance(20.0, "engine_error", "no answer"))
    longer = HostConditions(avoidance=Avoidance(40.0, "engine_error", "no answer"))
    await note(store, first, first, longer, now=10.0)
    await note(store, HostConditions(avoidance=Avoidance(70.0, "disk_full", "")), now=45.0)
    found = await rows(store, "SELECT data FROM event WHERE kind='agent.avoided'")
    assert [json.loads(data)["until"] for (data,) in found] == [20_000, 70_000]
    assert json.loads(found[0][0])["error"] == "no answer"


async def test_drain_that_a_host_reports_is_an_event_of_the_host(store: Store) -> None:
    await store.run(learn_drain, "h", DRAIN, 9.0)
    await store.run(learn_drain, "h", replace(DRAIN, deadline=60.0), 10.0)
    await store.run(learn_drain, "h", Drain(2, False), 11.0)
    await store.run(learn_drain, "h", Drain(4, False), 12.0)
    sql = "SELECT kind, actor FROM event ORDER BY sequence"
    assert await rows(store, sql) == [("agent.draining", "h"), ("agent.undrained", "h")]


async def sessions_of(store: Store, *names: str) -> None:
    live = replace(X, state=State.RUNNING)
    for name in names:
        identity = replace(X.identity, session_id=name)
        await report(store, "h", replace(live, internal_id=name, identity=identity))


async def drained(store: Store, drain: Drain) -> int:
    """Order a drain, and mark all sessions; return in how many transactions."""
    await store.run(learn_drain, "h", drain, 9.0)
    count = 1
    while not await store.run(note_draining, "h", 9.0):
        count += 1
    return count


async def test_each_live_session_of_a_draining_host_gets_one_event(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "PORTION", 2)
    await sessions_of(store, "a", "b", "c")
    assert await drained(store, DRAIN) == 2
    assert await store.run(note_draining, "h", 9.0)
    sql = "SELECT object, data FROM event WHERE kind='session.draining' ORDER BY sequence"
    found = await rows(store, sql)
    assert [name for name, _ in found] == ["a", "b", "c"]
    data = json.loads(found[0][1])
    assert data["deadline"] == 50_000
    assert data["image"] == "game"
    assert (await store.look(get_agent, "h")).sessions_draining == DRAIN.mark


async def test_session_that_is_reported_first_during_a_drain_learns_of_it_after_its_start(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are marked in portions; the newest is not marked twice."""
    monkeypatch.setattr(conditions, "PORTION", 1)
    await sessions_of(store, "a", "b")
    await store.run(learn_drain, "h", DRAIN, 9.0)
    assert not await store.run(note_draining, "h", 9.0)
    await sessions_of(store, "early")
    await drained(store, DRAIN)
    await sessions_of(store, "late")
    await sessions_of(store, "late")
    await drained(store, DRAIN)
    sql = "SELECT kind FROM event WHERE object='late' ORDER BY sequence"
    found = [kind for (kind,) in await rows(store, sql)]
    assert found == ["session.adopted", "session.running", "session.draining"]
    for name in ("a", "b", "early"):
        sql = f"SELECT kind FROM event WHERE object='{name}' AND kind='session.draining'"
        assert await rows(store, sql) == [("session.draining",)]
    await drained(store, Drain(4, False))
    sql = "SELECT count(*) FROM event WHERE kind='session.undrained'"
    assert await rows(store, sql) == [(4,)]


async def test_sessions_learn_of_another_deadline_and_of_the_end_of_a_drain(store: Store) -> None:
    await sessions_of(store, "a")
    await drained(store, DRAIN)
    await drained(store, Drain(4, True, 90.0))
    await drained(store, Drain(5, False))
    sql = "SELECT kind, data FROM event WHERE kind LIKE 'session.%drain%' ORDER BY sequence"
    found = [(kind, json.loads(data).get("deadline")) for kind, data in await rows(store, sql)]
    assert found == [
        ("session.draining", 50_000),
        ("session.draining", 90_000),
        ("session.undrained", None),
    ]


async def test_order_of_an_operator_is_an_event_of_the_operator(store: Store) -> None:
    await store.run(order_drain, "h", DRAIN, actor=Actor("t"), now=9.0)
    assert await rows(store, "SELECT kind, actor FROM event") == [("agent.draining", "t")]
