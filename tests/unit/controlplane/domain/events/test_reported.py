"""The events of reports of sessions."""

from dataclasses import replace
from typing import Any

import pytest

from controlplane.domain.access.audit import Actor
from controlplane.domain.events.reported import KnownSession, reported_events
from tests.unit.controlplane.fleet.host.test_state import SESSION
from tiltyard.contract import EndReason, State

RUNNING = KnownSession("alice", "x", True, State.RUNNING, None, None)
STARTING = replace(RUNNING, is_confirmed=False, state=State.CREATED)
CLAIMED = replace(RUNNING, is_confirmed=False)
RESTARTING = replace(RUNNING, state=State.RESTARTING, failed_ms=1)


def events(before: KnownSession, after: KnownSession, **reported: Any) -> list[tuple[str, Any]]:
    session = replace(SESSION, state=after.state, host="192.0.2.1", **reported)
    found = list(reported_events(before, after, session, reporter=Actor("h"), now=9.0))
    for event in found:
        assert event.account == "alice"
        assert event.subject == "x"
        assert event.actor.name == "h"
        assert event.time == 9.0
        assert event.data()["host"] == "192.0.2.1"
    return [(event.kind, event.data()) for event in found]


def kinds(before: KnownSession, after: KnownSession, **reported: Any) -> list[str]:
    return [kind for kind, _ in events(before, after, **reported)]


@pytest.mark.parametrize("before", [STARTING, CLAIMED, RESTARTING])
def test_run_that_a_host_reports_first_is_an_event(before: KnownSession) -> None:
    after = replace(RUNNING, failed_ms=before.failed_ms)
    assert kinds(before, after) == ["session.running"]


def test_report_of_a_ready_session_runs_and_is_ready() -> None:
    after = replace(RUNNING, ready_ms=5000)
    found = events(CLAIMED, after, ready_time=5.0)
    assert [kind for kind, _ in found] == ["session.running", "session.ready"]
    assert found[1][1]["readyMs"] == 5000


def test_ports_bound_later_are_an_event_once() -> None:
    ready = replace(RUNNING, ready_ms=5000)
    assert kinds(RUNNING, ready, ready_time=5.0) == ["session.ready"]
    assert kinds(ready, ready, ready_time=5.0) == []


def test_failed_run_is_an_event() -> None:
    ready = replace(RUNNING, ready_ms=5000)
    assert events(ready, RESTARTING)[0] == (
        "session.restarting",
        {"host": "192.0.2.1", "skipped": ()},
    )


def test_states_between_two_reports_are_named() -> None:
    again = replace(RUNNING, failed_ms=2)
    [(kind, data)] = events(RUNNING, again)
    assert kind == "session.running"
    assert data["skipped"] == (State.RESTARTING,)
    [(kind, data)] = events(RESTARTING, replace(RESTARTING, failed_ms=2))
    assert kind == "session.restarting"
    assert data["skipped"] == (State.RUNNING,)


def test_stop_in_progress_is_an_event_once() -> None:
    stopping = replace(RUNNING, state=State.SHUTTINGDOWN)
    assert kinds(RUNNING, stopping) == ["session.stopping"]
    assert kinds(stopping, stopping) == []


def test_end_has_its_reason_and_exit_code() -> None:
    after = replace(RUNNING, state=State.DEAD)
    found = events(RUNNING, after, end_reason=EndReason.OOM, exit_code=137)
    data = {"reason": "oom", "exitCode": 137, "host": "192.0.2.1"}
    assert found == [("session.ended", data)]


def test_report_that_only_confirms_a_created_session_is_no_event() -> None:
    assert kinds(STARTING, replace(STARTING, is_confirmed=True)) == []
