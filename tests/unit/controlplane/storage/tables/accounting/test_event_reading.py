"""The log is read forwards, and a reader learns of what was removed."""

from collections.abc import Sequence

import pytest

from controlplane.domain.access.audit import ITSELF
from controlplane.domain.events.accounts import TokenRevoked
from controlplane.domain.events.event import Event, Retention
from controlplane.domain.events.filters import EventFilter
from controlplane.domain.events.fleet import RegionCreated
from controlplane.domain.events.positions import EventsGoneError, Position
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.event_log import begin_epoch, position
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.access import accounts
from controlplane.storage.tables.accounting import event_reading
from controlplane.storage.tables.accounting.event_reading import first_position, read_after
from controlplane.storage.tables.accounting.event_retention import remove_old, remove_until
from tests.support.controlplane.session_events import starting
from tests.support.controlplane.transactions import connection_of

ALL = EventFilter(None, is_operator=True)
ALICE = EventFilter("alice")
NOW = 1000.0


def session(name: str, account: str = "alice", now: float = NOW) -> Event:
    return starting(account, name, now)


def token(name: str, account: str = "alice", now: float = NOW) -> Event:
    return TokenRevoked(account, name, ITSELF, now, revoked_with=name)


async def write(store: Store, *events: Event) -> None:
    def transaction(db: Database) -> None:
        for event in events:
            db.append(event)

    await store.run(transaction)


async def read(
    store: Store, wanted: EventFilter, after: int, limit: int = 100
) -> tuple[Sequence[str], int]:
    """Read after a number; return the objects, and the number to continue after."""
    batch = await store.read(read_after, wanted, Position(1, after), limit)
    return [event.row.object for event in batch.events], batch.after.number


async def test_events_of_an_account_come_in_order(store: Store) -> None:
    region = RegionCreated("", "r", ITSELF, NOW)
    await write(store, session("a"), session("x", "bob"), token("b"), region)
    assert await read(store, ALICE, 0) == (["a", "b"], 4)
    assert await read(store, ALICE, 1) == (["b"], 4)
    assert await read(store, ALICE, 4) == ([], 4)
    assert await read(store, ALL, 0) == (["a", "x", "b", "r"], 4)


async def test_read_ends_at_its_limit(store: Store) -> None:
    await write(store, *(session(str(n)) for n in range(5)))
    assert await read(store, ALICE, 1, limit=2) == (["1", "2"], 3)
    assert await read(store, ALICE, 3, limit=2) == (["3", "4"], 5)


async def test_kinds_and_sessions_are_found(store: Store) -> None:
    await write(store, session("a"), token("a"), session("b"), session("a", "bob"))
    assert await read(store, EventFilter("alice", kinds=("token.*",)), 0) == (["a"], 4)
    assert await read(store, EventFilter("alice", session="a"), 0) == (["a"], 4)
    assert await read(store, EventFilter("alice", image="game"), 0) == (["a", "b"], 4)
    assert await read(store, EventFilter("alice", image="other"), 0) == ([], 4)


async def test_read_looks_at_a_bounded_part(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_reading, "SCANNED", 3)
    monkeypatch.setattr(event_reading, "NEAR", 1)
    await write(store, *(session(str(n)) for n in range(4)), token("t"))
    tokens = EventFilter("alice", kinds=("token.*",))
    assert await read(store, tokens, 0) == ([], 3)
    assert await read(store, tokens, 3) == (["t"], 5)


async def test_events_of_one_account_among_those_of_others_are_found_in_one_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_reading, "NEAR", 2)
    others = [session(str(number), "bob") for number in range(8)]
    await write(store, session("a"), *others, session("b"), session("c"))
    assert await read(store, ALICE, 0, limit=2) == (["a", "b"], 10)
    assert await read(store, ALICE, 0) == (["a", "b", "c"], 11)
    assert await read(store, EventFilter("bob"), 0, limit=1) == (["0"], 2)


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (ALL, "INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        (ALICE, "event_by_account (account=? AND rowid>? AND rowid<?)"),
        (EventFilter("alice", session="a"), "event_by_object (object=? AND rowid>? AND rowid<?)"),
    ],
)
async def test_read_uses_an_index_and_sorts_nothing(
    store: Store, wanted: EventFilter, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_reading, "NEAR", 1)
    await write(store, session("a"), session("b"))

    def plans(db: Database) -> str:
        statements: list[str] = []
        connection = connection_of(db)
        connection.set_trace_callback(statements.append)
        read_after(db, wanted, Position(1, 0), 10)
        connection.set_trace_callback(None)
        reads = [sql for sql in statements if "FROM event " in sql]
        assert reads
        return " ".join(
            str(row) for sql in reads for row in db.execute(f"EXPLAIN QUERY PLAN {sql}")
        )

    plan = await store.read(plans)
    assert index in plan
    assert "TEMP B-TREE" not in plan


async def gone(store: Store, wanted: EventFilter, after: Position) -> EventsGoneError:
    with pytest.raises(EventsGoneError) as raised:
        await store.read(read_after, wanted, after, 10)
    return raised.value


async def test_reader_behind_a_removal_by_age_is_told_the_oldest_event(store: Store) -> None:
    await write(store, session("a", now=1.0), session("b", "bob", now=1.0), session("c"))
    await store.run(remove_old, 0, before=5.0, now=2000.0)
    error = await gone(store, ALICE, Position(1, 1))
    assert error.resume == (1, 2)
    assert error.oldest == (1, 3)
    assert await read(store, ALICE, 2) == (["c"], 3)


async def test_reader_without_an_event_left_is_told_so(store: Store) -> None:
    await write(store, session("a", now=1.0), session("b", "bob"))
    await store.run(remove_old, 0, before=5.0, now=2000.0)
    error = await gone(store, ALICE, Position(1, 0))
    assert error.resume == (1, 1)
    assert error.oldest is None


async def test_removal_by_number_concerns_readers_of_its_class_and_account(store: Store) -> None:
    await write(store, session("a"), token("t"), session("b"), session("x", "bob"))
    await store.run(remove_until, "alice", Retention.SESSIONS, after=0, last=1)
    assert (await gone(store, ALICE, Position(1, 0))).resume == (1, 1)
    assert (await gone(store, ALL, Position(1, 0))).resume == (1, 1)
    assert await read(store, EventFilter("alice", kinds=("token.*",)), 0) == (["t"], 4)
    assert await read(store, EventFilter("bob"), 0) == (["x"], 4)


async def test_portion_without_a_removal_leaves_the_start(store: Store) -> None:
    await write(store, session("ahead", now=1e10))
    await store.run(remove_old, 0, before=5.0, now=2000.0)
    assert await read(store, ALICE, 0) == (["ahead"], 1)


async def test_position_of_another_epoch_is_gone(store: Store) -> None:
    await write(store, session("a"), session("b"))
    await store.run(begin_epoch, 7.0)
    error = await gone(store, ALICE, Position(1, 2))
    assert error.resume == (7, 0)
    assert error.oldest == (7, 1)


async def test_position_that_the_log_has_not_reached_is_gone(store: Store) -> None:
    await write(store, session("a"))
    assert (await gone(store, ALICE, Position(1, 2))).resume == (1, 0)


async def test_next_account_of_a_name_gets_no_event_of_the_former(store: Store) -> None:
    await write(store, session("a"))
    await store.run(accounts.remove, "alice", ITSELF, NOW)
    await store.run_in_portions(accounts.remove_portion, "alice")
    start = await store.read(first_position, ALICE)
    assert start == await store.read(position)
    await write(store, session("b"))
    assert await read(store, ALICE, start.number) == (["b"], start.number + 1)
    assert await read(store, ALL, start.number) == (["b"], start.number + 1)


@pytest.mark.parametrize(
    ("wanted", "objects"),
    [
        (ALL, ["x", "a", "alice"]),
        (EventFilter("alice", is_operator=True), ["a", "alice"]),
        (EventFilter("bob"), ["x"]),
    ],
)
async def test_events_of_a_removed_account_are_left(
    store: Store, wanted: EventFilter, objects: list[str]
) -> None:
    await write(store, session("x", "bob"), session("a"))
    await store.run(accounts.remove, "alice", ITSELF, NOW)
    await store.run_in_portions(accounts.remove_portion, "alice")
    found, _ = await read(store, wanted, 0)
    assert [each for each in found if each in {"x", "a", "alice"}] == objects


async def test_small_page_of_a_filter_of_data_passes_over_other_events(store: Store) -> None:
    others = [session(str(number)) for number in range(300)]
    await write(store, *others, starting("alice", "b", NOW, "b"), session("c"))
    of_image = EventFilter("alice", image="b")
    assert await read(store, of_image, 0, limit=1) == (["b"], 301)
    assert await read(store, of_image, 301, limit=1) == ([], 302)
    assert await read(store, of_image, 0, limit=5) == (["b"], 302)


async def test_text_of_another_field_does_not_match(store: Store) -> None:
    other = starting("alice", "a", NOW, labels={"image": "b"})
    await write(store, other, starting("alice", "b", NOW, "b"))
    of_image = EventFilter("alice", image="b")
    assert await read(store, of_image, 0, limit=1) == ([], 1)
    assert await read(store, of_image, 1, limit=1) == (["b"], 2)
    assert await read(store, EventFilter("alice", labels={"image": "b"}), 0) == (["a"], 2)


async def test_oldest_event_of_a_filter_of_data_is_not_the_first_one(store: Store) -> None:
    await write(store, session("a"), starting("alice", "b", NOW, "b"))
    with pytest.raises(EventsGoneError) as gone:
        await read(store, EventFilter("alice", image="b"), 9)
    assert gone.value.oldest == Position(1, 2)
