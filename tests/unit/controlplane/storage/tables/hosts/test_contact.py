"""The contact with hosts: an event when it is lost, and when it is back."""

from typing import Any

from controlplane.domain.hosts.written import Written
from controlplane.storage.engine.changes import Change, Topic
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.hosts.contact import lose, note_downtime, note_report
from tests.unit.controlplane.storage.tables.sessions.test_claims import rows


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
