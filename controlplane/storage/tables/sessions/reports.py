"""Session reports of agents: the facts of `domain/sessions/adoption`, and its decisions."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from controlplane.domain.access.audit import Actor
from controlplane.domain.events.reported import KnownSession, reported_events
from controlplane.domain.events.sessions import SessionAdopted, SessionDuplicate, SessionSubject
from controlplane.domain.hosts.contract import HostSession, TicketContents
from controlplane.domain.sessions.adoption import (
    Decision,
    Duplicate,
    MissingRow,
    PlacedSession,
    ReportedAccount,
    Rival,
    RowChange,
    Verdict,
    Verdicts,
    decide,
)
from controlplane.domain.sessions.stop_orders import StopCause
from controlplane.storage.engine.database import Database
from controlplane.storage.tables.sessions import lost_times
from controlplane.storage.tables.sessions.players import begin_run
from controlplane.storage.tables.sessions.reported_rows import (
    ReportedRow,
    read_row,
    read_rows,
    row_of,
    says_same,
    values_of,
)
from controlplane.storage.tables.sessions.session_ends import end_missing
from controlplane.storage.tables.sessions.session_rows import (
    put_row,
    remove_labels,
    write_report,
)
from controlplane.storage.tables.sessions.stop_orders import (
    confirm_stop,
    end_stop_orders,
    order_stop,
)
from tiltyard.contract import EndReason, State
from tiltyard.runtime.clock import to_ms

ReadTicket = Callable[[str, HostSession], TicketContents | None]
"""Returns what the ticket of an agent's session says; None if it is not valid."""


@dataclass(frozen=True, slots=True)
class Reporter:
    """The reporting agent and the time. `keep_ended`: retention of ended sessions in seconds."""

    agent: str
    read_ticket: ReadTicket
    now: float
    keep_ended: float


def write_all(db: Database, by: Reporter, sessions: Collection[HostSession]) -> Verdicts:
    """Write and evaluate reported sessions."""
    verdicts = {}
    rows = read_rows(db, sessions)
    for session in sessions:
        internal_id = session.internal_id
        values = rows.pop(internal_id, None)
        if values is not None and says_same(values, by.agent, session):
            verdicts[internal_id] = Verdict.KEEP
            continue
        row = read_row(db, internal_id) if values is None else row_of(values)
        decision = _evaluate(db, by, session, row)
        if decision.change is RowChange.ADOPT:
            # The rows of other sessions may not be as they were read.
            rows.clear()
        verdicts[internal_id] = decision.verdict
    return verdicts


def write_stopped(db: Database, by: Reporter, session: HostSession) -> None:
    """Do `write_all` and `confirm_stop` of one session."""
    write_all(db, by, (session,))
    confirm_stop(db, by.agent, session.internal_id, by.now)


def _evaluate(
    db: Database, by: Reporter, session: HostSession, row: ReportedRow | None
) -> Decision:
    if row is None:
        return _evaluate_without_row(db, by, session)
    decision = decide(session, by.agent, row.named_by)
    match decision.change:
        case RowChange.REPORT:
            _write(db, by, session, row)
        case RowChange.LAST_REPORT:
            _write(db, by, session, row)
            lost = EndReason.HOST_LOST
            end_missing(db, by.agent, session.internal_id, now=by.now, reason=lost)
            end_stop_orders(db, by.agent, by.now)
        case RowChange.END:
            end_missing(db, by.agent, session.internal_id, now=by.now)
    if decision.verdict is Verdict.STOP_REQUESTED and not row.reported["confirmed"]:
        order_stop(db, by.agent, session.internal_id, StopCause.REQUESTED, now=by.now)
    return decision


def _evaluate_without_row(db: Database, by: Reporter, session: HostSession) -> Decision:
    placed = _lost(db, by, session)
    decision = decide(session, by.agent, _facts_without_row(db, by, session, placed))
    duplicate = decision.duplicate
    if duplicate is not None:
        _note_duplicate(db, by, session, duplicate)
    if decision.change is RowChange.ADOPT and placed is not None:
        _adopt(db, by, session, placed)
    if decision.verdict is Verdict.STOP_REQUESTED:
        order_stop(db, by.agent, session.internal_id, StopCause.REQUESTED, now=by.now)
    return decision


def _facts_without_row(
    db: Database, by: Reporter, session: HostSession, placed: TicketContents | None
) -> MissingRow:
    """Read the facts; most sessions without a row are standbys, of which two are needed."""
    served, ordered = db.execute(
        "SELECT EXISTS (SELECT 1 FROM agent"
        " WHERE name=:agent AND removed_ms IS NULL AND revoked_ms IS NULL),"
        " EXISTS (SELECT 1 FROM stop_order WHERE internal_id=:internal_id AND agent=:agent)",
        {"agent": by.agent, "internal_id": session.internal_id},
    ).fetchone()
    age = by.now - session.end_time if session.end_time else 0.0
    return MissingRow(
        to_ms(session.create_time),
        _account(db, session) if placed else None,
        _rival(db, session) if placed else None,
        is_in_service=bool(served),
        has_stop_order=bool(ordered),
        was_lost=placed is not None,
        is_past_retention=age >= by.keep_ended,
    )


def _account(db: Database, session: HostSession) -> ReportedAccount | None:
    row = db.execute(
        "SELECT created_ms, removed_ms IS NOT NULL FROM account WHERE name=:account",
        {"account": session.identity.account},
    ).fetchone()
    return None if row is None else ReportedAccount(row[0], bool(row[1]))


def _rival(db: Database, session: HostSession) -> Rival | None:
    row = db.execute(
        "SELECT agent, internal_id, started_ms, confirmed, ended_ms, adopted_ended,"
        " stop_requested_ms FROM session WHERE account=:account AND id=:id",
        {"account": session.identity.account, "id": session.identity.session_id},
    ).fetchone()
    if row is None:
        return None
    agent, internal_id, started_ms, confirmed, ended_ms, adopted_ended, stop_requested_ms = row
    return Rival(
        PlacedSession(agent or "", internal_id or ""),
        started_ms=started_ms or 0,
        is_confirmed=bool(confirmed),
        has_ended=ended_ms is not None,
        was_adopted_ended=bool(adopted_ended),
        is_stop_requested=stop_requested_ms is not None,
    )


def _lost(db: Database, by: Reporter, session: HostSession) -> TicketContents | None:
    """Return what was placed, if this database may have lost the row of a session."""
    placed = None if session.is_standby else by.read_ticket(by.agent, session)
    if placed is None:
        return None
    is_lost = lost_times.cover(db, placed.issued_ms, now=by.now, kept=by.keep_ended)
    return placed if is_lost else None


def _adopt(db: Database, by: Reporter, session: HostSession, placed: TicketContents) -> None:
    """Point the row of the session's id to this session, and write the report."""
    _take_row(db, by, session, placed)
    db.append(SessionAdopted(*SessionSubject.of(session.identity).named(Actor(by.agent), by.now)))
    row = read_row(db, session.internal_id)
    assert row is not None
    _write(db, by, session, row)


def _note_duplicate(
    db: Database, by: Reporter, session: HostSession, duplicate: Duplicate
) -> None:
    stopped = duplicate.stopped
    order_stop(db, stopped.agent, stopped.internal_id, StopCause.SUPERSEDED, now=by.now)
    named = SessionSubject.of(session.identity).named(Actor(by.agent), by.now)
    db.append(SessionDuplicate(*named, stopped=stopped, kept=duplicate.kept))


def _take_row(db: Database, by: Reporter, session: HostSession, placed: TicketContents) -> None:
    """Point the row of an id to this session; its players and stop mark stay."""
    identity = session.identity
    remove_labels(db, identity.account, identity.session_id)
    row = {
        "account": identity.account,
        "id": identity.session_id,
        "internal_id": session.internal_id,
        "agent": by.agent,
        "state": session.state,
        "application": identity.application,
        "tag": identity.tag,
        "location": identity.location,
        "external_id": identity.external_id,
        "traceparent": identity.traceparent,
        "nano_cpus": placed.nano_cpus,
        "memory_bytes": placed.memory_bytes,
        "created_ms": to_ms(min(session.create_time, by.now)),
        "ended_ms": None,
        "adopted_ended": session.state.ended,
    }
    put_row(db, row, identity.labels)


def _write(db: Database, by: Reporter, session: HostSession, row: ReportedRow) -> None:
    """Write what a live row's session reports and its row does not say."""
    ended = session.state.ended
    before = row.reported
    reported = values_of(session)
    changes = {name: value for name, value in reported.items() if value != before[name]}
    if not changes and not ended:
        return
    # A host's wrong clock must not change the retention of a row.
    end_time = min(session.end_time or by.now, by.now) if ended else None
    subject = row.subject
    write_report(db, subject, changes, end_time)
    failed = session.failure_time
    if failed is not None and "failed_ms" in changes:
        begin_run(db, subject.account, subject.session_id, failed=failed, now=by.now)
    known = _known(before)
    after = replace(_known(reported), state_ms=to_ms(session.state_time))
    reporter = Actor(by.agent)
    for event in reported_events(subject, known, after, session, reporter=reporter, now=by.now):
        db.append(event)


def _known(reported: Mapping[str, Any]) -> KnownSession:
    """Convert the values of `_REPORTED`."""
    return KnownSession(
        bool(reported["confirmed"]),
        State(reported["state"]),
        reported["failed_ms"],
        reported["ready_ms"],
    )
