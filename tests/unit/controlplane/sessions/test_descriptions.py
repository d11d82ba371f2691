"""A description is kept until a commit changes its session."""

import pytest

from controlplane.domain.status import SessionStatus
from controlplane.sessions.descriptions import Description, Descriptions
from controlplane.storage.engine.store import Database, Store
from tests.unit.controlplane.storage.tables.test_players import SESSION
from tiltyard.contract import State

KEY = ("alice", "one")
OTHER = ("alice", "two")


def description(content: bytes = b"{}") -> Description:
    return Description("h", State.RUNNING, SessionStatus.RUNNING, content)


@pytest.fixture
async def store(store: Store) -> Store:
    for _, name in (KEY, OTHER):
        await store.run(Database.execute, SESSION, {"id": name})
    return store


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE session SET player_count = player_count + 1 WHERE id = 'one'",
        "UPDATE session SET state = 'exited', ended_ms = 1 WHERE id = 'one'",
        "DELETE FROM session WHERE id = 'one'",
    ],
)
async def test_commit_drops_description_of_its_session_alone(store: Store, change: str) -> None:
    descriptions = Descriptions(store)
    kept = description()
    for key in (KEY, OTHER):
        with descriptions.looking(key) as keep:
            keep(kept)
    await store.look(Database.execute, "SELECT * FROM session")
    assert descriptions.get(KEY) is kept
    await store.run(Database.execute, change)
    assert descriptions.get(KEY) is None
    assert descriptions.get(OTHER) is kept


@pytest.mark.part_alone
async def test_f52_what_was_read_before_a_commit_is_not_kept_after_it(store: Store) -> None:
    descriptions = Descriptions(store)
    kept = description()
    with descriptions.looking(KEY) as keep_old:
        await store.run(Database.execute, "UPDATE session SET tag = 'v2' WHERE id = 'one'")
        with descriptions.looking(KEY) as keep_new:
            keep_old(description(b"old"))
            assert descriptions.get(KEY) is None
            keep_new(kept)
    assert descriptions.get(KEY) is kept


async def test_the_least_recently_used_are_dropped_beyond_the_budget(store: Store) -> None:
    content = b"x" * 1000
    descriptions = Descriptions(store, most_bytes=3 * description(content).size)
    for number in range(3):
        with descriptions.looking(("alice", str(number))) as keep:
            keep(description(content))
    assert descriptions.get(("alice", "0")) is not None
    with descriptions.looking(("alice", "3")) as keep:
        keep(description(content))
    assert [number for number in range(4) if descriptions.get(("alice", str(number)))] == [0, 2, 3]
    with descriptions.looking(KEY) as keep:
        keep(description(content * 9))
    assert all(descriptions.get(("alice", str(number))) is None for number in range(4))
    assert descriptions.get(KEY) is None
