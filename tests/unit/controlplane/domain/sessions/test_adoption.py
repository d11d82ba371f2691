"""Decisions on reported sessions, as a table from facts to decisions."""

from dataclasses import replace

import pytest

from controlplane.domain.hosts.contract import HostSession
from controlplane.domain.sessions.adoption import (
    Decision,
    Duplicate,
    MissingRow,
    NamingRow,
    PlacedSession,
    ReportedAccount,
    Rival,
    RowChange,
    Verdict,
    decide,
)
from tests.unit.controlplane.fleet.host.test_state import SESSION
from tiltyard.contract import State

LIVE = replace(SESSION, internal_id="m", state=State.RUNNING)
CREATED = replace(LIVE, state=State.CREATED)
ENDED = replace(LIVE, state=State.EXITED)
STANDBY = replace(LIVE, warm_pool="pool")
ENDED_STANDBY = replace(ENDED, warm_pool="pool")
DOUBTED = replace(STANDBY, in_doubt=True)

KEEP = Decision(Verdict.KEEP)
STOP = Decision(Verdict.STOP)
UNCLAIMED = Decision(Verdict.UNCLAIMED)
ADOPT = Decision(Verdict.KEEP, RowChange.ADOPT)
WRITE = Decision(Verdict.KEEP, RowChange.REPORT)

OURS = NamingRow("h")
OTHERS = NamingRow("g")
ENDED_ROW = NamingRow("h", has_ended=True)
REVOKED = NamingRow("h", is_revoked=True)
TO_STOP = NamingRow("h", is_stop_requested=True)


@pytest.mark.parametrize(
    ("session", "row", "expected"),
    [
        (LIVE, OURS, WRITE),
        (CREATED, OURS, WRITE),
        (ENDED, OURS, WRITE),
        (LIVE, TO_STOP, Decision(Verdict.STOP_REQUESTED, RowChange.REPORT)),
        (ENDED, TO_STOP, WRITE),
        (LIVE, REVOKED, Decision(Verdict.STOP, RowChange.LAST_REPORT)),
        (STANDBY, REVOKED, Decision(Verdict.STOP, RowChange.LAST_REPORT)),
        (LIVE, ENDED_ROW, STOP),
        (STANDBY, ENDED_ROW, STOP),
        (ENDED, ENDED_ROW, KEEP),
        (LIVE, OTHERS, UNCLAIMED),
        (STANDBY, OTHERS, KEEP),
        (ENDED, OTHERS, KEEP),
        (STANDBY, OURS, Decision(Verdict.CLAIM)),
        (DOUBTED, OURS, Decision(Verdict.CLAIM)),
        (STANDBY, TO_STOP, Decision(Verdict.STOP_REQUESTED)),
        (ENDED_STANDBY, OURS, Decision(Verdict.KEEP, RowChange.END)),
    ],
)
def test_session_that_a_row_names(
    session: HostSession, row: NamingRow, expected: Decision
) -> None:
    assert decide(session, "h", row) == expected


ACCOUNT = ReportedAccount(created_ms=100)
LOST = MissingRow(500, ACCOUNT)
UNKNOWN_ACCOUNT = replace(LOST, account=None)
REMOVED_ACCOUNT = replace(LOST, account=replace(ACCOUNT, is_removed=True))
NOT_LOST = replace(LOST, was_lost=False)
UNANSWERED = replace(LOST, has_stop_order=True)
GONE_AGENT = replace(LOST, is_in_service=False)


@pytest.mark.parametrize(
    ("session", "facts", "expected"),
    [
        (LIVE, LOST, ADOPT),
        (ENDED, LOST, ADOPT),
        (CREATED, LOST, KEEP),
        (LIVE, GONE_AGENT, KEEP),
        (LIVE, UNANSWERED, STOP),
        (STANDBY, UNANSWERED, STOP),
        (ENDED, UNANSWERED, KEEP),
        (DOUBTED, NOT_LOST, STOP),
        (STANDBY, NOT_LOST, KEEP),
        (LIVE, NOT_LOST, UNCLAIMED),
        (ENDED, NOT_LOST, KEEP),
        (LIVE, UNKNOWN_ACCOUNT, UNCLAIMED),
        (LIVE, REMOVED_ACCOUNT, STOP),
        (ENDED, REMOVED_ACCOUNT, KEEP),
        (ENDED, replace(LOST, is_past_retention=True), KEEP),
        (ENDED, replace(LOST, created_ms=99), KEEP),
        (LIVE, replace(LOST, created_ms=99), ADOPT),
    ],
)
def test_session_that_no_row_names(
    session: HostSession, facts: MissingRow, expected: Decision
) -> None:
    assert decide(session, "h", facts) == expected


REPORTED = PlacedSession("h", "m")
OTHER = PlacedSession("g", "a")
RIVAL = Rival(OTHER, started_ms=400)
LATER = replace(RIVAL, started_ms=501)
ADOPTED_ENDED = replace(RIVAL, has_ended=True, was_adopted_ended=True)
UNDER_WAY = Rival(PlacedSession("", ""), is_confirmed=False)
SUPERSEDE = Decision(Verdict.KEEP, RowChange.ADOPT, Duplicate(stopped=OTHER, kept=REPORTED))
GIVE_WAY = Decision(Verdict.STOP, duplicate=Duplicate(stopped=REPORTED, kept=OTHER))


@pytest.mark.parametrize(
    ("session", "rival", "expected"),
    [
        (LIVE, RIVAL, SUPERSEDE),
        (LIVE, LATER, GIVE_WAY),
        (LIVE, replace(RIVAL, started_ms=500), SUPERSEDE),
        (LIVE, UNDER_WAY, Decision(Verdict.WAIT)),
        (LIVE, replace(LATER, is_confirmed=False), Decision(Verdict.WAIT)),
        (LIVE, replace(RIVAL, has_ended=True), GIVE_WAY),
        (LIVE, ADOPTED_ENDED, ADOPT),
        (LIVE, replace(ADOPTED_ENDED, started_ms=501), GIVE_WAY),
        (ENDED, RIVAL, KEEP),
        (ENDED, UNDER_WAY, KEEP),
    ],
)
def test_session_whose_id_has_another_row(
    session: HostSession, rival: Rival, expected: Decision
) -> None:
    assert decide(session, "h", replace(LOST, rival=rival)) == expected


def test_higher_internal_id_is_later_if_both_started_in_the_same_millisecond() -> None:
    other = PlacedSession("g", "z")
    rival = Rival(other, started_ms=LOST.created_ms)
    expected = Decision(Verdict.STOP, duplicate=Duplicate(stopped=REPORTED, kept=other))
    assert decide(LIVE, "h", replace(LOST, rival=rival)) == expected


def test_stop_mark_stays_with_the_id_that_is_adopted() -> None:
    facts = replace(LOST, rival=replace(RIVAL, is_stop_requested=True))
    assert decide(LIVE, "h", facts).verdict is Verdict.STOP_REQUESTED
