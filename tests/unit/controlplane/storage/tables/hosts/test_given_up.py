"""The sessions of removed and revoked hosts end in portions."""

import asyncio

import pytest

from controlplane.domain.access.audit import Actor
from controlplane.domain.errors import ConflictError
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.hosts.enrolment import end_sessions_on_revoked
from controlplane.storage.tables.hosts.fleet import remove_agent
from controlplane.storage.tables.sessions import session_ends
from controlplane.storage.tables.sessions.session_ends import lose_sessions
from controlplane.storage.tables.sessions.sessions import reserve
from tests.support.controlplane.transactions import run_sql
from tests.unit.controlplane.storage.tables.hosts.test_contact import running
from tests.unit.controlplane.storage.tables.sessions.test_claims import cold, rows

OPERATOR = Actor("operator")
ENDED = "SELECT count(*) FROM session WHERE end_reason='host_lost'"
REMOVED = "SELECT count(*) FROM event WHERE kind='agent.removed'"


async def test_start_is_written_between_the_ends_of_1000_sessions(store: Store) -> None:
    await running(store, 1000)
    losing = asyncio.create_task(store.run_in_portions(lose_sessions, "h", 60.0), name="losing")
    await store.run(lose_sessions, "h", 60.0)
    await store.run(reserve, cold("new"))
    [(before_start,)] = await rows(store, ENDED)
    assert before_start < 1000
    await losing
    assert await rows(store, ENDED) == [(1000,)]


async def test_lost_agent_is_removed_once_its_sessions_have_ended(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_ends, "PORTION", 2)
    await running(store, 5)
    await store.run(run_sql, "UPDATE agent SET lost_ms=1 WHERE name='h'")
    for ended in (2, 2, 1):
        assert await store.run(remove_agent, "h", OPERATOR, 60.0) == ended
        assert await rows(store, REMOVED) == [(0,)]
    assert await store.run(remove_agent, "h", OPERATOR, 60.0) == 0
    assert await rows(store, REMOVED) == [(1,)]
    assert await rows(store, ENDED) == [(5,)]


async def test_lost_agent_with_an_unanswered_start_keeps_its_sessions(store: Store) -> None:
    await running(store, 2)
    await store.run(run_sql, "UPDATE agent SET lost_ms=1 WHERE name='h'")
    await store.run(run_sql, "UPDATE session SET confirmed=FALSE WHERE id='s1'")
    with pytest.raises(ConflictError):
        await store.run(remove_agent, "h", OPERATOR, 60.0)
    assert await rows(store, ENDED) == [(0,)]


async def test_next_process_ends_what_is_left_on_each_revoked_host(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_ends, "PORTION", 2)
    await running(store, 5)
    await store.run(run_sql, "UPDATE session SET agent='g' WHERE id IN ('s0', 's1', 's2')")
    await store.run(run_sql, "UPDATE agent SET revoked_ms=1, id=name")
    await store.run(lose_sessions, "h", 60.0)
    await store.run_in_portions(end_sessions_on_revoked, 61.0)
    assert await rows(store, ENDED) == [(5,)]
