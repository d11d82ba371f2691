"""The reports of an agent that are in rows, and what makes them differ."""

import pytest

from controlplane.domain.access.audit import Actor
from controlplane.domain.hosts.written import Written
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.hosts.contact import note_report
from controlplane.storage.tables.hosts.fleet import get_agent, remove_agent
from controlplane.storage.tables.sessions.written_reports import unchanged_since_written
from tests.unit.controlplane.storage.tables.sessions.test_claims import rows
from tests.unit.controlplane.storage.tables.sessions.test_reports import X, report

WRITTEN = Written("i", 7)


async def test_is_kept_with_the_time_of_the_report(store: Store) -> None:
    await store.run(note_report, "h", 5.0, WRITTEN)
    agent = await store.look(get_agent, "h")
    assert agent.written == WRITTEN
    assert agent.last_report == 5.0


async def test_removed_agent_has_none(store: Store) -> None:
    await store.run(note_report, "h", 5.0, WRITTEN)
    await store.run(remove_agent, "h", Actor("operator"), 1.0)
    sql = "SELECT written_incarnation, written_sequence FROM agent WHERE name='h'"
    assert await rows(store, sql) == [("", 0)]


async def test_row_with_a_report_has_not_changed_since_it_was_written(store: Store) -> None:
    await report(store, "h", X)
    found = await store.look(unchanged_since_written, "h", [X.internal_id, "unknown"])
    assert found == {X.internal_id}


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE session SET confirmed=0",
        "UPDATE session SET stop_requested_ms=1",
        "UPDATE session SET ended_ms=1",
        "UPDATE session SET agent='g'",
        "UPDATE agent SET revoked_ms=1",
        "DELETE FROM session",
    ],
)
async def test_row_that_has_changed_since_a_report_was_written(store: Store, change: str) -> None:
    await report(store, "h", X)
    await rows(store, change)
    assert await store.look(unchanged_since_written, "h", [X.internal_id]) == set()
