"""The contact with hosts: an event when it is lost, and when it is back."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from controlplane.domain.hosts.written import Written
from controlplane.storage.engine.changes import Change, Topic
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.hosts import contact
from controlplane.storage.tables.hosts.contact import lose, note_downtime, note_report
from controlplane.storage.tables.sessions import session_ends
from controlplane.storage.tables.sessions.sessions import reserve
from tests.unit.controlplane.storage.tables.sessions.test_claims import cold, rows
from tests.unit.controlplane.storage.tables.sessions.test_reports import X, report
from tiltyard.contract import State


async def events(store: Store) -> list[tuple[Any, ...]]:
    return await rows(
        store, "SELECT kind, object, data FROM event WHERE kind LIKE 'agent.%' ORDER BY sequence"
    )


async def test_regular_reports_of_a_host_are_neither_events_nor_changes(store: Store) -> None:
    published: list[Change] = []
    store.changes.subscribe({Topic.HOST}, published.append)
    for now in (60.0, 120.0):
        await store.run(note_report, "h", now, Written())
    assert await events(store) == []
    assert published == []


async def test_downtime_is_an_event_once_until_the_host_is_back(store: Store) -> None:
    for seconds in (60.0, 120.0):
        await store.run(note_downtime, "h", seconds, seconds)
    await store.run(note_report, "h", 130.0, Written())
    await store.run(note_downtime, "h", 60.0, 190.0)
    assert await events(store) == [
        ("agent.unresponsive", "h", "{}"),
        ("agent.back", "h", '{"wasLost": false}'),
        ("agent.unresponsive", "h", "{}"),
    ]


async def test_host_that_was_removed_meanwhile_is_not_called_unresponsive(store: Store) -> None:
    await store.run(lambda db: db.execute("UPDATE agent SET removed_ms=1 WHERE name='h'"))
    await store.run(note_downtime, "h", 60.0, 60.0)
    assert await events(store) == []


async def test_return_of_a_lost_host_says_that_its_sessions_were_given_up(store: Store) -> None:
    await store.run(lose, "h", (), 60.0)
    await store.run(note_report, "h", 130.0, Written())
    assert await events(store) == [
        ("agent.lost", "h", "{}"),
        ("agent.back", "h", '{"wasLost": true}'),
    ]


async def running(store: Store, count: int) -> None:
    """Let host h report sessions."""
    sessions = [
        replace(
            X,
            state=State.RUNNING,
            internal_id=f"i{number}",
            identity=replace(X.identity, session_id=f"s{number}"),
        )
        for number in range(count)
    ]
    await report(store, "h", *sessions)


async def test_sessions_of_a_lost_host_end_in_portions(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (contact, session_ends):
        monkeypatch.setattr(module, "PORTION", 2)
    await running(store, 5)
    done = [await store.run(lose, "h", ("i3",), 60.0) for _ in range(3)]
    assert done == [False, False, True]
    ended = await rows(store, "SELECT object FROM event WHERE kind='session.ended' ORDER BY 1")
    assert ended == [("s0",), ("s1",), ("s2",), ("s4",)]
    assert await events(store) == [("agent.lost", "h", "{}")]
    assert await store.run(lose, "h", (), 61.0)
    assert await rows(store, "SELECT count(*) FROM event WHERE kind='agent.lost'") == [(1,)]


async def test_start_is_written_between_the_ends_of_1000_sessions(store: Store) -> None:
    await running(store, 1000)

    async def lose_all() -> None:
        while not await store.run(lose, "h", (), 60.0):
            pass

    losing = asyncio.create_task(lose_all(), name="lose all")
    await store.run(lose, "h", (), 60.0)
    await store.run(reserve, cold("new"))
    ended = "SELECT count(*) FROM event WHERE kind='session.ended'"
    [(before_start,)] = await rows(store, ended)
    assert before_start < 1000
    await losing
    assert await rows(store, ended) == [(1000,)]
