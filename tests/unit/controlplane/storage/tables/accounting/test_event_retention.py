"""The removal of old events, a portion at a time."""

from controlplane.domain.access.audit import Actor
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.statements import PORTION
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.accounting.event_retention import remove_old
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
