import json
from dataclasses import replace
from typing import Any

import pytest

from controlplane.domain.hosts.contract import HostSession, TicketContents
from controlplane.domain.sessions.adoption import Verdict, Verdicts
from controlplane.domain.sessions.stop_orders import StopCause
from controlplane.fleet.host.reports import Reports
from controlplane.storage.engine.changes import Change, Topic
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.sessions.lost_times import MARGIN
from controlplane.storage.tables.sessions.stop_orders import order_stop
from tests.support.controlplane.transactions import connection_of, run_sql
from tests.unit.controlplane.fleet.host.test_state import SESSION
from tests.unit.controlplane.storage.tables.sessions.test_claims import rows
from tiltyard.contract import EndReason, Identity, Resources, State
from tiltyard.runtime.clock import to_ms

NOW = 100.0
X = replace(SESSION, identity=Identity("alice", "x", "game", "v1", "local", ticket="good"))
LIVE = "SELECT agent, internal_id FROM session WHERE ended_ms IS NULL"


def read_ticket(_: str, session: HostSession) -> TicketContents | None:
    """Read the ticket of a session that was ordered at 90, with two cores and 20 bytes."""
    return TicketContents(90_000, 2 * 10**9, 20) if session.identity.ticket == "good" else None


async def report(store: Store, agent: str, *sessions: HostSession) -> Verdicts:
    reports = Reports(store, read_ticket=read_ticket, keep_ended=50.0)
    return await reports.write(agent, sessions, NOW)


async def verdict(store: Store, agent: str, session: HostSession) -> Verdict:
    return (await report(store, agent, session))[session.internal_id]


def attempt(internal_id: str, create_time: float, **changes: Any) -> HostSession:
    return replace(X, internal_id=internal_id, create_time=create_time, **changes)


def ended(session: HostSession, end_time: float | None) -> HostSession:
    return replace(session, state=State.EXITED, end_reason=EndReason.EXITED, end_time=end_time)


EARLIER_AND_LATER = [
    (attempt("b", 2), attempt("a", 3)),
    (attempt("a", 3), attempt("b", 3)),
]


async def assert_later_one_is_kept(store: Store, older: HostSession, newer: HostSession) -> None:
    """Check the rows: the older session is on host h, the newer one on host g."""
    assert await rows(store, LIVE) == [("g", newer.internal_id)]
    owed = "SELECT agent, internal_id FROM stop_order WHERE confirmed_ms IS NULL"
    assert await rows(store, owed) == [("h", older.internal_id)]
    [(data,)] = await rows(store, "SELECT data FROM event WHERE kind='session.duplicate'")
    stopped = {"agent": "h", "internalId": older.internal_id}
    kept = {"agent": "g", "internalId": newer.internal_id}
    found = json.loads(data)
    assert found["stopped"] == stopped
    assert found["kept"] == kept


@pytest.mark.parametrize(("older", "newer"), EARLIER_AND_LATER, ids=["later", "higher id"])
async def test_later_start_supersedes_a_session_with_its_id(
    store: Store, older: HostSession, newer: HostSession
) -> None:
    await report(store, "h", older)
    ordered: list[Change] = []
    store.changes.subscribe({Topic.STOP_ORDER}, ordered.append)
    await report(store, "g", newer)
    assert ordered == [Change(Topic.STOP_ORDER, ("h", older.internal_id))]
    await assert_later_one_is_kept(store, older, newer)


@pytest.mark.parametrize(("older", "newer"), EARLIER_AND_LATER, ids=["later", "higher id"])
async def test_earlier_start_is_stopped_if_a_session_has_its_id(
    store: Store, older: HostSession, newer: HostSession
) -> None:
    await report(store, "g", newer)
    found = await report(store, "h", older)
    assert found == {older.internal_id: Verdict.STOP}
    await assert_later_one_is_kept(store, older, newer)


async def test_session_waits_for_a_start_of_its_id(store: Store) -> None:
    await report(store, "h", X)
    await rows(store, "UPDATE session SET confirmed=0")
    other = attempt("other", 9)
    assert await verdict(store, "g", other) is Verdict.WAIT
    await rows(store, "DELETE FROM session")
    assert await verdict(store, "g", other) is Verdict.KEEP


async def test_report_of_starts_under_way_needs_no_transaction(store: Store) -> None:
    reports = Reports(store, read_ticket=read_ticket, keep_ended=50.0)
    await store.close()
    assert await reports.write("h", [X], NOW, {X.internal_id}) == {}


async def test_an_ended_row_never_comes_back(store: Store) -> None:
    await report(store, "h", X)
    await report(store, "h", ended(X, 99))
    assert await verdict(store, "h", X) is Verdict.STOP
    assert await verdict(store, "g", attempt("later", 9)) is Verdict.STOP
    assert await rows(store, LIVE) == []


async def test_adopted_ended_session_gives_way_to_a_live_one(store: Store) -> None:
    assert await verdict(store, "h", ended(attempt("old", 2), 99)) is Verdict.KEEP
    assert await rows(store, "SELECT state FROM session") == [("exited",)]
    assert await verdict(store, "g", attempt("new", 3)) is Verdict.KEEP
    assert await rows(store, LIVE) == [("g", "new")]


@pytest.mark.parametrize(
    "session",
    [
        attempt("i", 2, end_time=1),
        attempt("i", 0.5, end_time=99),
    ],
)
async def test_too_old_session_is_not_adopted(store: Store, session: HostSession) -> None:
    assert await verdict(store, "h", ended(session, session.end_time)) is Verdict.KEEP
    assert await rows(store, "SELECT 1 FROM session") == []


@pytest.mark.parametrize(
    "end_time",
    [
        None,
        0.001,
        10**9,
    ],
)
@pytest.mark.parametrize(
    "create_time",
    [
        2,
        99.5,
        10**9,
    ],
)
async def test_clock_of_a_host_does_not_decide_end_times(
    store: Store, create_time: float, end_time: float | None
) -> None:
    session = attempt("i", create_time)
    await report(store, "h", session)
    await report(store, "h", ended(session, end_time))
    ((created, end),) = await rows(store, "SELECT created_ms, ended_ms FROM session")
    assert created <= end <= NOW * 1000


async def test_session_of_removed_account_is_stopped(store: Store) -> None:
    await rows(store, "UPDATE account SET removed_ms=1")
    assert await verdict(store, "h", X) is Verdict.STOP


async def test_agent_reports_count_only_for_its_own_sessions(store: Store) -> None:
    await report(store, "h", X)
    assert await verdict(store, "g", X) is Verdict.UNCLAIMED
    assert await verdict(store, "g", ended(X, 99)) is Verdict.KEEP
    assert await rows(store, LIVE) == [("h", "i")]
    await store.run(order_stop, "h", "o", StopCause.UNANSWERED, now=NOW)
    forged = attempt("o", 2, identity=replace(X.identity, ticket=""))
    assert await verdict(store, "g", forged) is Verdict.UNCLAIMED
    assert await verdict(store, "h", forged) is Verdict.STOP


async def test_account_of_a_session_comes_from_its_row(store: Store) -> None:
    await report(store, "h", X)
    await report(store, "h", ended(replace(X, identity=replace(X.identity, account="bob")), None))
    events = await rows(store, "SELECT account, object FROM event WHERE kind='session.ended'")
    assert events == [("alice", "x")]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"state": State.RESTARTING},
        {"host": "192.0.2.9"},
        {"ports": ()},
        {"injected_env": {"b": "2", "a": "1"}},
        {"create_time": 7},
        {"exit_code": 3},
        {"detail": "it waits"},
    ],
    ids="".join,
)
async def test_only_a_report_that_differs_is_written(store: Store, change: dict[str, Any]) -> None:
    await report(store, "h", X)
    before = await rows(store, "SELECT * FROM session")
    await rows(store, "CREATE TABLE written (number INTEGER)")
    trigger = "CREATE TRIGGER t AFTER UPDATE ON session BEGIN INSERT INTO written VALUES (1); END"
    await rows(store, trigger)
    await report(store, "h", replace(X, **change))
    assert len(await rows(store, "SELECT 1 FROM written")) == len(change)
    assert (await rows(store, "SELECT * FROM session") != before) is bool(change)
    [(env,)] = await rows(store, "SELECT injected_env FROM session")
    assert env == json.dumps(dict(change.get("injected_env", {})), sort_keys=True)


@pytest.mark.parametrize(
    "change",
    [
        None,
        {"detail": "lost"},
        {"exit_code": 1},
    ],
)
async def test_only_changes_cost_queries(store: Store, change: dict[str, Any] | None) -> None:
    sessions = [
        attempt(f"i-{number}", 1, identity=replace(X.identity, session_id=f"s-{number}"))
        for number in range(30)
    ]
    await report(store, "h", *sessions)
    few = await _statements(store, sessions[:2])
    sessions[7] = replace(sessions[7], **(change or {}))
    many = await _statements(store, sessions)
    assert (len(many) == len(few)) is (change is None)
    # SQLite traces a statement with RETURNING once for each of its triggers, too.
    updates = {statement for statement in many if statement.startswith("UPDATE")}
    assert len(updates) == (change is not None)
    assert all("'s-7'" in update for update in updates)
    assert all(f" SET {column}=" in update for update in updates for column in change or {})


async def test_report_of_standby_without_a_row_takes_two_statements(store: Store) -> None:
    standbys = [replace(SESSION, internal_id=name, warm_pool="p") for name in ("i", "j")]
    one = await _statements(store, standbys[:1])
    both = await _statements(store, standbys)
    assert len(both) - len(one) == 2


async def _statements(store: Store, sessions: list[HostSession]) -> list[str]:
    """Return the statements of a report in which nothing is stopped."""
    ran: list[str] = []
    await store.run(lambda db: connection_of(db).set_trace_callback(ran.append))
    found = await report(store, "h", *sessions)
    await store.run(lambda db: connection_of(db).set_trace_callback(None))
    assert set(found.values()) == {Verdict.KEEP}
    return ran


@pytest.mark.parametrize(
    ("begin", "end", "is_adopted"),
    [
        (0, None, True),
        (0, 90, True),
        (80, 95, True),
        (0, 90 - MARGIN - 1, False),
        (90 + MARGIN + 1, None, False),
        (90 + MARGIN + 1, 90 + MARGIN + 2, False),
    ],
)
async def test_only_what_was_ordered_in_a_lost_time_is_adopted(
    store: Store, begin: float, end: float | None, *, is_adopted: bool
) -> None:
    await rows(store, "DELETE FROM lost_time")
    await store.run(
        run_sql,
        "INSERT INTO lost_time VALUES (:begin, :end)",
        {"begin": to_ms(begin), "end": to_ms(end)},
    )
    expected = Verdict.KEEP if is_adopted else Verdict.UNCLAIMED
    assert await verdict(store, "h", X) is expected
    assert len(await rows(store, LIVE)) == is_adopted
    assert await verdict(store, "h", ended(attempt("other", 2), 99)) is Verdict.KEEP
    assert len(await rows(store, "SELECT 1 FROM session WHERE internal_id='other'")) == 0


@pytest.mark.parametrize(
    ("now", "is_adopted"),
    [
        (140.0, True),
        (141.0, False),
    ],
)
async def test_nothing_is_adopted_once_ended_sessions_of_a_lost_time_are_removed(
    store: Store, now: float, *, is_adopted: bool
) -> None:
    await rows(store, "UPDATE lost_time SET end_ms=90000")
    reports = Reports(store, read_ticket=read_ticket, keep_ended=50.0)
    found = await reports.write("h", [X], now)
    expected = Verdict.KEEP if is_adopted else Verdict.UNCLAIMED
    assert found == {X.internal_id: expected}


async def test_a_session_is_adopted_with_the_resources_of_its_ticket(store: Store) -> None:
    await report(store, "h", replace(X, reservation=Resources(2**46, 2**50)))
    found = await rows(store, "SELECT nano_cpus, memory_bytes FROM session")
    assert found == [(2 * 10**9, 20)]
