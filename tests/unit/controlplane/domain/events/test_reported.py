"""The events of reports of sessions."""

from dataclasses import replace
from typing import Any

import pytest

from controlplane.domain.access.audit import Actor
from controlplane.domain.events.reported import KnownSession, reported_events
from controlplane.domain.events.sessions import SessionSubject
from tests.unit.controlplane.fleet.host.test_state import SESSION
from tiltyard.contract import EndReason, State

OF = SessionSubject("alice", "x", "game", "v1", "local", '{"mode": "duel"}')
RUNNING = KnownSession(True, State.RUNNING, None, None)
STARTING = replace(RUNNING, is_confirmed=False, state=State.CREATED)
CLAIMED = replace(RUNNING, is_confirmed=False)
RESTARTING = replace(RUNNING, state=State.RESTARTING, failed_ms=1)


def events(before: KnownSession, after: KnownSession, **reported: Any) -> list[tuple[str, Any]]:
    session = replace(SESSION, state=after.state, host="192.0.2.1", **reported)
    found = list(reported_events(OF, before, after, session, reporter=Actor("h"), now=9.0))
    for event in found:
        assert event.account == "alice"
        assert event.subject == "x"
        assert event.actor.name == "h"
        assert event.time == 9.0
        assert event.data()["host"] == "192.0.2.1"
        assert event.data()["image"] == "game"
        assert event.data()["labels"] == {"mode": "duel"}
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
    assert found[1][1]["hostTime"] == 5000
    assert found[1][1]["ports"] == {"1/udp": 20007}


def test_ports_bound_later_are_an_event_once() -> None:
    ready = replace(RUNNING, ready_ms=5000)
    assert kinds(RUNNING, ready, ready_time=5.0) == ["session.ready"]
    assert kinds(ready, ready, ready_time=5.0) == []


def test_failed_run_is_an_event() -> None:
    ready = replace(RUNNING, ready_ms=5000)
    [(kind, data)] = events(ready, replace(RESTARTING, ready_ms=5000, state_ms=6000))
    assert kind == "session.restarting"
    assert data["hostTime"] == 6000
    assert data["skipped"] == ()


STOPPING = replace(RUNNING, state=State.SHUTTINGDOWN)
DEAD = replace(RUNNING, state=State.DEAD)
TTL = EndReason.TTL


@pytest.mark.parametrize(
    ("before", "after", "reported", "skipped"),
    [
        (RUNNING, replace(RUNNING, failed_ms=2), {}, "restarting"),
        (RESTARTING, replace(RESTARTING, failed_ms=2), {}, "running"),
        (STARTING, RESTARTING, {}, "running"),
        (CLAIMED, replace(RESTARTING, ready_ms=1), {}, "running ready"),
        (RUNNING, replace(RESTARTING, failed_ms=9, ready_ms=5), {}, "ready"),
        (STARTING, STOPPING, {}, "running"),
        (STARTING, STOPPING, {"has_run": False}, ""),
        (RESTARTING, replace(STOPPING, failed_ms=1), {}, ""),
        (RESTARTING, replace(STOPPING, failed_ms=1, ready_ms=5), {}, "running ready"),
        (RUNNING, replace(STOPPING, failed_ms=4), {}, "restarting"),
        (RUNNING, replace(STOPPING, failed_ms=4, ready_ms=5), {}, "restarting running ready"),
        (RUNNING, replace(STOPPING, failed_ms=4, ready_ms=3), {}, "ready restarting"),
        (STARTING, DEAD, {}, "running"),
        (STARTING, DEAD, {"has_run": False}, ""),
        (RUNNING, DEAD, {"end_reason": EndReason.OOM}, ""),
        (RUNNING, DEAD, {"end_reason": TTL}, "stopping"),
        (RUNNING, replace(DEAD, ready_ms=5), {"end_reason": TTL}, "ready stopping"),
        (STOPPING, DEAD, {"end_reason": TTL}, ""),
        (STARTING, replace(DEAD, failed_ms=3), {}, "running restarting"),
    ],
)
def test_states_between_two_reports_are_named(
    before: KnownSession, after: KnownSession, reported: dict[str, Any], skipped: str
) -> None:
    [(_, data)] = events(before, after, **reported)
    assert " ".join(data["skipped"]) == skipped


def test_stop_in_progress_is_an_event_once() -> None:
    stopping = replace(RUNNING, state=State.SHUTTINGDOWN)
    assert kinds(RUNNING, stopping) == ["session.stopping"]
    assert kinds(stopping, stopping) == []


def test_end_has_its_reason_and_exit_code() -> None:
    after = replace(DEAD, state_ms=9000)
    [(kind, data)] = events(RUNNING, after, end_reason=EndReason.OOM, exit_code=137)
    assert kind == "session.ended"
    assert data["reason"] == "oom"
    assert data["exitCode"] == 137
    assert data["hostTime"] == 9000
    assert data["forced"] is False


def test_end_says_whether_the_game_had_to_be_killed() -> None:
    [(_, data)] = events(STOPPING, DEAD, end_reason=TTL, forced=True)
    assert data["forced"] is True


def test_report_that_only_confirms_a_created_session_is_no_event() -> None:
    assert kinds(STARTING, replace(STARTING, is_confirmed=True)) == []
