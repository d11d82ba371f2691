"""Joining costs few statements, also with events."""

from controlplane.domain.access.audit import ITSELF, Actor
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.sessions.players import join
from tests.support.controlplane.transactions import connection_of

SESSION = (
    "INSERT INTO session(account, id, state, application, tag, location, labels, external_id,"
    " nano_cpus, memory_bytes, created_ms)"
    " VALUES ('alice', :id, 'running', 'game', 'v1', 'eu', '{}', '', 0, 0, 0)"
)


APPLICATION = (
    "INSERT INTO application(account, name, registry, repository, tag_keep, network_mode,"
    " node_pool, regions, limits, reserved_nano_cpus, reserved_memory_bytes, reserved_gpus,"
    " ports, player_events, created_ms)"
    " VALUES ('alice', 'game', 'hub', 'game', 1, 'bridge', 'default', '[]', '{}', 0, 0, 0, '[]',"
    " :player_events, 0)"
)


def statements_of_a_join(
    db: Database, actor: Actor | None = ITSELF, *, player_events: bool = False
) -> list[str]:
    db.execute("PRAGMA defer_foreign_keys=ON")
    db.execute(APPLICATION, {"player_events": player_events})
    db.execute(SESSION, {"id": "m"})
    statements: list[str] = []
    connection_of(db).set_trace_callback(statements.append)
    assert join(db, "alice", "m", ["a", "b"], actor=actor, now=0.0) == ["a", "b"]
    connection_of(db).set_trace_callback(None)
    db.execute("DELETE FROM application")
    # A statement with a trigger is traced repeatedly.
    return [sql.split()[0] for sql in dict.fromkeys(statements)]


async def test_a_join_looks_up_inserts_reads_and_counts(store: Store) -> None:
    assert await store.run(statements_of_a_join) == ["SELECT", "INSERT", "SELECT", "UPDATE"]


async def test_events_cost_a_join_one_statement_before_they_are_appended(store: Store) -> None:
    found = await store.run(statements_of_a_join, player_events=True)
    assert found == ["SELECT", "INSERT", "SELECT", "UPDATE", "SELECT"]


async def test_no_application_records_players_without_an_actor(store: Store) -> None:
    found = await store.run(statements_of_a_join, None, player_events=True)
    assert found == ["SELECT", "INSERT", "SELECT", "UPDATE"]
