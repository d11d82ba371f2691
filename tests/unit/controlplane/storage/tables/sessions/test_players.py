"""Joining costs few statements."""

from controlplane.storage.engine.database import Database
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.sessions.players import join
from tests.support.controlplane.transactions import connection_of

SESSION = (
    "INSERT INTO session(account, id, state, application, tag, location, labels, external_id,"
    " nano_cpus, memory_bytes, created_ms)"
    " VALUES ('alice', :id, 'running', 'game', 'v1', 'eu', '{}', '', 0, 0, 0)"
)


def statements_of_a_join(db: Database) -> list[str]:
    db.execute(SESSION, {"id": "m"})
    statements: list[str] = []
    connection_of(db).set_trace_callback(statements.append)
    assert join(db, "alice", "m", ["a", "b"], now=0.0) == ["a", "b"]
    connection_of(db).set_trace_callback(None)
    # A statement with a trigger is traced repeatedly.
    return [sql.split()[0] for sql in dict.fromkeys(statements)]


async def test_a_join_looks_up_inserts_reads_and_counts(store: Store) -> None:
    assert await store.run(statements_of_a_join) == ["SELECT", "INSERT", "SELECT", "UPDATE"]
