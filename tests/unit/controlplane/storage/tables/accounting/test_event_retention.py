"""The removal of old events, a portion at a time."""

import pytest

from controlplane.domain.access.audit import Actor
from controlplane.domain.events.players import PlayersLeft
from controlplane.domain.events.sessions import SessionSubject
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.statements import PORTION
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.accounting import event_retention
from controlplane.storage.tables.accounting.event_retention import remove_of_players, remove_old
from tests.support.controlplane.events import probe


async def write(store: Store, count: int, now: float) -> None:
    """Append events of a time."""

    def transaction(db: Database) -> None:
        for _ in range(count):
            db.append(probe("old.x", "", "o", actor=Actor("x"), now=now))

    await store.run(transaction)


async def left(store: Store) -> int:
    """The number of events."""
    [count] = await store.run(lambda db: db.execute("SELECT count(*) FROM event").fetchone())
    return int(count)


async def test_removal_looks_at_a_portion_and_returns_where_to_continue(store: Store) -> None:
    await write(store, 2 * PORTION, 3.0)
    await write(store, 7, 5.0)
    number = await store.run(remove_old, 0, before=4.0, now=6.0)
    assert await left(store) == PORTION + 7
    assert number is not None
    number = await store.run(remove_old, number, before=4.0, now=6.0)
    assert await left(store) == 7
    assert number is not None
    assert await store.run(remove_old, number, before=4.0, now=6.0) is None
    assert await left(store) == 7


async def test_removal_ends_at_the_first_portion_of_young_events(store: Store) -> None:
    await write(store, PORTION, 5.0)
    assert await store.run(remove_old, 0, before=4.0, now=6.0) is None


def left_at(db: Database, *times: float, account: str = "alice") -> None:
    """Append an event of a player of each of these times."""
    subject = SessionSubject(account, "m", "game", "v1", "local", "{}")
    for now in times:
        db.append(PlayersLeft(*subject.named(Actor("x"), now), players=["ann"]))


async def starts(store: Store) -> list[tuple[str, str, int]]:
    """The accounts, classes and numbers after which their readers begin."""
    sql = "SELECT account, retention, number FROM event_start ORDER BY account"
    return await store.run(lambda db: db.execute(sql).fetchall())


async def test_old_events_of_players_are_removed_whatever_their_order(store: Store) -> None:
    await store.run(left_at, 9.0, 1.0, 8.0, 2.0)
    await store.run(left_at, 3.0, 7.0, account="bob")
    await write(store, 3, 1.0)
    assert await store.run(remove_of_players, 5.0) == 3
    assert await left(store) == 6
    assert await starts(store) == [("alice", "PLAYERS", 4), ("bob", "PLAYERS", 5)]
    assert await store.run(remove_of_players, 5.0) == 0


async def test_events_of_players_are_removed_in_portions(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_retention, "PORTION", 2)
    await store.run(left_at, 1.0, 2.0, 3.0)
    assert await store.run(remove_of_players, 5.0) == 2
    assert await store.run(remove_of_players, 5.0) == 1
    assert await starts(store) == [("alice", "PLAYERS", 3)]
