"""Reports of sessions append events."""

import json
from dataclasses import replace
from functools import partial

from controlplane.domain.events.sessions import MOST_LABEL_BYTES
from controlplane.domain.sessions.attempts import Attempt
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.sessions import sessions
from controlplane.storage.tables.sessions.session_ends import end_missing
from tests.unit.controlplane.storage.tables.sessions.test_claims import cold, rows
from tests.unit.controlplane.storage.tables.sessions.test_reports import NOW, X, ended, report
from tiltyard.contract import State

ATTEMPT = Attempt("internal", "h", "192.0.2.1")


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
        "image": "game",
        "tag": "v1",
        "location": "local",
        "labels": {},
        "traceparent": None,
        "host": "192.0.2.1",
        "hostTime": None,
        "skipped": [],
        "reason": "engine_error",
        "exitCode": None,
        "forced": None,
    }


async def test_events_of_a_report_have_the_ports_and_the_time_of_the_host(store: Store) -> None:
    await report(store, "h", replace(X, state=State.RUNNING, state_time=7.0, ready_time=8.0))
    found = await rows(store, "SELECT kind, data FROM event WHERE kind LIKE 'session.r%'")
    data = {kind: json.loads(text) for kind, text in found}
    assert data["session.running"]["ports"] == {"1/udp": 20007}
    assert data["session.running"]["hostTime"] == 7000
    assert data["session.ready"]["ports"] == {"1/udp": 20007}
    assert data["session.ready"]["hostTime"] == 8000


async def test_events_have_labels_up_to_a_size(store: Store) -> None:
    small = replace(X.identity, labels={"mode": "duel"})
    large = replace(X.identity, session_id="y", labels={"mode": "x" * MOST_LABEL_BYTES})
    await report(store, "h", replace(X, identity=small))
    await report(store, "h", replace(X, identity=large, internal_id="j"))
    found = await rows(
        store, "SELECT object, data FROM event WHERE kind='session.running' ORDER BY sequence"
    )
    labels = {name: json.loads(text)["labels"] for name, text in found}
    assert labels == {"x": {"mode": "duel"}, "y": None}


async def test_start_that_a_crash_has_cut_off_fails(store: Store) -> None:
    await store.run(sessions.reserve, cold("audited"), first=ATTEMPT)
    await store.run(sessions.end_attempt, "alice", "audited", ATTEMPT, now=NOW)
    await store.run(sessions.reserve, cold("waiting"))
    await store.run(sessions.drop_unattempted, NOW)
    found = await rows(store, "SELECT object, data FROM event WHERE kind='session.start_failed'")
    assert [name for name, _ in found] == ["audited"]
    assert json.loads(found[0][1])["why"] == "the control plane ended during the start"


async def test_start_that_its_host_has_reported_does_not_fail(store: Store) -> None:
    await store.run(sessions.reserve, cold("x"), first=ATTEMPT)
    internal_id = ATTEMPT.internal_id
    await report(store, ATTEMPT.agent, replace(X, internal_id=internal_id))
    call = partial(sessions.free, why="", now=NOW, attempt=ATTEMPT, is_audited=True)
    await store.run(call, "alice", "x")
    assert await rows(store, "SELECT 1 FROM event WHERE kind='session.start_failed'") == []
