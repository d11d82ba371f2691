"""Session reports of agents: the facts of `domain/sessions/adoption`, and its decisions."""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from controlplane.domain.access.audit import Actor
from controlplane.domain.events.reported import KnownSession, reported_events
from controlplane.domain.events.sessions import SessionAdopted, SessionDuplicate, SessionSubject
from controlplane.domain.hosts.contract import HostSession, Placed
from controlplane.domain.sessions.adoption import (
    Duplicate,
    NamedBy,
    NoRow,
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
from controlplane.storage.tables.sessions.session_columns import env_json, port_values
from controlplane.storage.tables.sessions.session_ends import end_missing, lose_sessions
from controlplane.storage.tables.sessions.session_rows import (
    put_row,
    remove_labels,
    write_report,
)
from controlplane.storage.tables.sessions.stop_orders import confirm_stop, order_stop
from tiltyard.contract import State
from tiltyard.runtime.clock import to_ms

ReadTicket = Callable[[str, HostSession], Placed | None]
"""Returns what the ticket of an agent's session says; None if it is not valid."""

_REPORTED = (
    "confirmed, state, host, ports, injected_env, started_ms, end_reason, exit_code, detail,"
    " failed_ms, ready_ms"
)
"""The columns that hosts report; `confirmed` is that they report the session at all."""


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
    unchanged = _unchanged(db, by, sessions)
    for session in sessions:
        internal_id = session.internal_id
        is_known = internal_id in unchanged
        verdicts[internal_id] = Verdict.KEEP if is_known else _evaluate(db, by, session)
    return verdicts


def write_stopped(db: Database, by: Reporter, session: HostSession) -> None:
    """Do `write_all` and `confirm_stop` of one session."""
    write_all(db, by, (session,))
    confirm_stop(db, by.agent, session.internal_id, by.now)


def _unchanged(db: Database, by: Reporter, sessions: Collection[HostSession]) -> set[str]:
    """Return the live sessions that need no evaluation, since their rows say the same.

    A snapshot consists of these. One query reads them in one step, since each step of SQLite
    waits for the interpreter lock, which the event loop of a starting control plane holds.
    No index of agents is used, since that would read all sessions of the agent.
    """
    live = {s.internal_id: s for s in sessions if not (s.is_standby or s.state.ended)}
    dialect = db.dialect
    content = dialect.rows_as_json(f"internal_id, {_REPORTED}", ("ports", "injected_env"))
    [rows] = db.execute(
        f"SELECT {content} FROM session"  # noqa: S608
        " JOIN agent ON agent.name = session.agent"
        f" WHERE internal_id {dialect.in_list('ids')}"
        f" AND {dialect.without_index('agent')}=:agent AND {dialect.without_index('ended_ms')}"
        " IS NULL AND stop_requested_ms IS NULL AND revoked_ms IS NULL",
        {"ids": dialect.list_value(list(live)), "agent": by.agent},
    ).fetchone()
    return {
        internal_id
        for internal_id, *row in json.loads(rows)
        if row == [*_values(live[internal_id]).values()]
    }


def _evaluate(db: Database, by: Reporter, session: HostSession) -> Verdict:
    row = db.execute(
        f"SELECT session.agent, ended_ms, stop_requested_ms, revoked_ms, {_REPORTED} FROM session"  # noqa: S608
        " LEFT JOIN agent ON agent.name = session.agent WHERE internal_id=:id",
        {"id": session.internal_id},
    ).fetchone()
    if row is None:
        return _evaluate_without_row(db, by, session)
    owner, ended_ms, stop_requested_ms, revoked_ms, *reported = row
    named_by = NamedBy(
        owner,
        has_ended=ended_ms is not None,
        is_stop_requested=stop_requested_ms is not None,
        is_revoked=revoked_ms is not None,
    )
    decision = decide(session, by.agent, named_by)
    match decision.change:
        case RowChange.REPORT:
            _write(db, by, session, reported)
        case RowChange.LAST_REPORT:
            _write(db, by, session, reported)
            lose_sessions(db, by.agent, by.now)
        case RowChange.END:
            end_missing(db, by.agent, session.internal_id, now=by.now)
    is_confirmed = bool(reported[0])
    if decision.verdict is Verdict.STOP_REQUESTED and not is_confirmed:
        order_stop(db, by.agent, session.internal_id, StopCause.REQUESTED, now=by.now)
    return decision.verdict


def _evaluate_without_row(db: Database, by: Reporter, session: HostSession) -> Verdict:
    placed = _lost(db, by, session)
    decision = decide(session, by.agent, _facts_without_row(db, by, session, placed))
    duplicate = decision.duplicate
    if duplicate is not None:
        _note_duplicate(db, by, session, duplicate)
    if decision.change is RowChange.ADOPT and placed is not None:
        _adopt(db, by, session, placed)
    if decision.verdict is Verdict.STOP_REQUESTED:
        order_stop(db, by.agent, session.internal_id, StopCause.REQUESTED, now=by.now)
    return decision.verdict


def _facts_without_row(
    db: Database, by: Reporter, session: HostSession, placed: Placed | None
) -> NoRow:
    """Read the facts; most sessions without a row are standbys, of which two are needed."""
    served, ordered = db.execute(
        "SELECT EXISTS (SELECT 1 FROM agent"
        " WHERE name=:agent AND removed_ms IS NULL AND revoked_ms IS NULL),"
        " EXISTS (SELECT 1 FROM stop_order WHERE internal_id=:internal_id AND agent=:agent)",
        {"agent": by.agent, "internal_id": session.internal_id},
    ).fetchone()
    age = by.now - session.end_time if session.end_time else 0.0
    return NoRow(
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


def _lost(db: Database, by: Reporter, session: HostSession) -> Placed | None:
    """Return what was placed, if this database may have lost the row of a session."""
    placed = None if session.is_standby else by.read_ticket(by.agent, session)
    if placed is None:
        return None
    is_lost = lost_times.cover(db, placed.issued_ms, now=by.now, kept=by.keep_ended)
    return placed if is_lost else None


def _adopt(db: Database, by: Reporter, session: HostSession, placed: Placed) -> None:
    """Point the row of the session's id to this session, and write the report."""
    _take_row(db, by, session, placed)
    db.append(SessionAdopted(*SessionSubject.of(session.identity).named(Actor(by.agent), by.now)))
    reported = db.execute(
        f"SELECT {_REPORTED} FROM session WHERE internal_id=:id",  # noqa: S608
        {"id": session.internal_id},
    ).fetchone()
    _write(db, by, session, [*reported])


def _note_duplicate(
    db: Database, by: Reporter, session: HostSession, duplicate: Duplicate
) -> None:
    stopped = duplicate.stopped
    order_stop(db, stopped.agent, stopped.internal_id, StopCause.SUPERSEDED, now=by.now)
    named = SessionSubject.of(session.identity).named(Actor(by.agent), by.now)
    db.append(SessionDuplicate(*named, stopped=stopped, kept=duplicate.kept))


def _take_row(db: Database, by: Reporter, session: HostSession, placed: Placed) -> None:
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


def _write(db: Database, by: Reporter, session: HostSession, before: Sequence[Any]) -> None:
    """Write the report of a live row's session, if it differs from the row (`before`)."""
    ended = session.state.ended
    reported = _reported(session)
    if [*reported.values()] == [*before] and not ended:
        return
    # A host's wrong clock must not change the retention of a row.
    end_time = min(session.end_time or by.now, by.now) if ended else None
    subject = write_report(db, session.internal_id, reported, end_time)
    known = _known(before)
    after = replace(_known([*reported.values()]), state_ms=to_ms(session.state_time))
    failed = session.failure_time
    if failed is not None and after.failed_ms != known.failed_ms:
        begin_run(db, subject.account, subject.session_id, failed=failed, now=by.now)
    reporter = Actor(by.agent)
    for event in reported_events(subject, known, after, session, reporter=reporter, now=by.now):
        db.append(event)


def _known(reported: Sequence[Any]) -> KnownSession:
    """Convert the values of `_REPORTED` of a row."""
    is_confirmed, state, *_, failed_ms, ready_ms = reported
    return KnownSession(bool(is_confirmed), State(state), failed_ms, ready_ms)


def _reported(session: HostSession) -> dict[str, object]:
    values = _values(session)
    ports = json.dumps(values["ports"])
    env = env_json(session.injected_env)
    return values | {"ports": ports, "injected_env": env}


def _values(session: HostSession) -> dict[str, object]:
    """Return what `_unchanged` selects from a row that says the same."""
    return {
        "confirmed": True,
        "state": session.state,
        "host": session.host,
        "ports": port_values(session.ports),
        "injected_env": session.injected_env,
        "started_ms": to_ms(session.create_time),
        "end_reason": session.end_reason,
        "exit_code": session.exit_code,
        "detail": session.detail,
        "failed_ms": to_ms(session.failure_time),
        "ready_ms": to_ms(session.ready_time),
    }
