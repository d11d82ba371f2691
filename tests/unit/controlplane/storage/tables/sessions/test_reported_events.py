"""Reports of sessions append events."""

import json
from dataclasses import replace

from controlplane.storage.engine.store import Store
from controlplane.storage.tables.sessions.session_ends import end_missing
from tests.unit.controlplane.storage.tables.sessions.test_claims import rows
from tests.unit.controlplane.storage.tables.sessions.test_reports import NOW, X, ended, report
from tiltyard.contract import State


async def test_each_state_of_a_session_is_one_event(store: Store) -> None:
    running = replace(X, state=State.RUNNING)
    await report(store, "h", running)
    await report(store, "h", running)
    await report(store, "h", replace(running, ready_time=5.0))
    await report(store, "h", replace(running, ready_time=5.0))
    assert await rows(store, "SELECT ready_ms FROM session WHERE id='x'") == [(5000,)]
    await report(store, "h", ended(running, 9.0))
    events = await rows(store, "SELECT kind FROM event WHERE kind LIKE 'session.%' ORDER BY 1")
    assert [kind for (kind,) in events] == [
        "session.adopted",
        "session.ended",
        "session.ready",
        "session.running",
    ]


async def test_end_of_a_lost_session_names_its_host(store: Store) -> None:
    await report(store, "h", replace(X, state=State.RUNNING, host="192.0.2.1"))
    await store.run(end_missing, "h", X.internal_id, now=NOW)
    [(data,)] = await rows(store, "SELECT data FROM event WHERE kind='session.ended'")
    assert json.loads(data) == {
        "reason": "engine_error",
        "exitCode": None,
        "host": "192.0.2.1",
    }
