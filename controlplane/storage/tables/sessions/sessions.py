"""Sessions in the database, as callers request them. `reports.py` has agents' reports."""

import json
from collections.abc import Sequence
from typing import Any

from controlplane.domain.access.audit import ITSELF, Actor
from controlplane.domain.errors import (
    AgentRefusedError,
    ConflictError,
    QuotaExceededError,
    StoppedDuringStartError,
    UnauthorizedError,
)
from controlplane.domain.events.sessions import (
    SessionStartFailed,
    SessionStarting,
    SessionStopRequested,
    SessionSubject,
)
from controlplane.domain.sessions.attempts import Attempt
from controlplane.domain.sessions.sessions import NewSession, Reserved, Session
from controlplane.domain.sessions.stop_orders import StopCause
from controlplane.storage.engine.database import Database
from controlplane.storage.tables.accounting.quota_use import passed_limit, quota_of
from controlplane.storage.tables.sessions.claims import check_standby, undo_claim
from controlplane.storage.tables.sessions.session_columns import env_json, port_values
from controlplane.storage.tables.sessions.session_queries import find_session, id_of
from controlplane.storage.tables.sessions.session_rows import (
    clear_attempt,
    delete_start,
    delete_unattempted,
    mark_to_stop,
    name_attempt,
    put_row,
)
from controlplane.storage.tables.sessions.stop_orders import order_stop
from tiltyard.contract import ErrorReason, State
from tiltyard.runtime.clock import from_ms, to_ms

COLUMNS = (
    "account, id, internal_id, agent, state, application, tag, location, host, ports,"
    " labels, external_id, injected_env, created_ms, ended_ms, detail,"
    " player_count"
)


_UNDER_WAY = (SessionStarting.kind, SessionStopRequested.kind)
"""The newest event of a session whose start is under way."""


def reserve(
    db: Database,
    new: NewSession,
    *,
    failed: Attempt | None = None,
    first: Attempt | None = None,
) -> Reserved:
    """Reserve the id and the quota, and the standby that `new` claims.

    Replaces the row of a `failed` claim of the same start; its players stay with its id. A claim
    is audited here, a cold start with its first attempt: cheap refusals must not fill the audit.

    The row names `first` unless its agent was removed or revoked.

    Raises:
        StoppedDuringStartError: The row of the failed claim has the stop mark.
        UnauthorizedError: The account was removed meanwhile.
        StandbyTakenError: The standby is not available.
        ConflictError: A session of the account has the id, or has it as its internal id.
        QuotaExceededError: It would exceed a limit of the account.
    """
    account = new.identity.account
    session_id = new.identity.session_id
    standby = new.standby
    is_ours = failed is not None and undo_claim(db, new.identity, failed, new.created)
    quota = quota_of(db, account)
    if quota is None:
        raise UnauthorizedError
    is_free = False
    if standby is not None:
        check_standby(db, account, standby.attempt)
        is_free = session_id == standby.attempt.internal_id  # it was checked, too
    if not (is_ours or is_free) and id_of(db, account, session_id) is not None:
        raise ConflictError("the session id is in use")
    put_row(db, _row(new), new.identity.labels)
    limit = passed_limit(db, account, quota)
    if limit is not None:
        raise QuotaExceededError(limit)
    first_of = None if is_ours else new.actor  # the audit has the failed claim under this id
    if standby is not None:
        if first_of is not None:
            subject = SessionSubject.of(new.identity)
            db.append(SessionStarting(*subject.named(first_of, new.created)))
        return Reserved(names_first=False, is_audited=True)
    if first is None:
        return Reserved(names_first=False, is_audited=is_ours)
    try:
        begin_attempt(db, account, session_id, first, now=new.created, first_of=first_of)
    except AgentRefusedError:
        return Reserved(names_first=False, is_audited=is_ours)
    return Reserved(names_first=True, is_audited=True)


def begin_attempt(
    db: Database,
    account: str,
    session_id: str,
    attempt: Attempt,
    *,
    now: float,
    first_of: Actor | None = None,
) -> None:
    """Write an attempt before its call.

    `first_of`: the caller, to be audited with the first attempt.

    Raises:
        StoppedDuringStartError: The row has the stop mark.
        AgentRefusedError: The agent was removed or revoked.
    """
    subject = name_attempt(db, account, session_id, attempt)
    if subject is None:
        to_stop = db.execute(
            "SELECT 1 FROM session WHERE account=:account AND id=:id"
            " AND stop_requested_ms IS NOT NULL",
            {"account": account, "id": session_id},
        )
        if to_stop.fetchone():
            raise StoppedDuringStartError
        raise AgentRefusedError(ErrorReason.DRAINING, "the agent was removed")
    if first_of is not None:
        db.append(SessionStarting(*subject.named(first_of, now)))


def end_attempt(
    db: Database, account: str, session_id: str, attempt: Attempt, *, now: float
) -> None:
    """Remove a failed attempt from its session, unless its host has reported it meanwhile."""
    if attempt.is_unanswered:
        order_stop(db, attempt.agent, attempt.internal_id, StopCause.UNANSWERED, now=now)
    clear_attempt(db, account, session_id, attempt.internal_id)


def free(
    db: Database,
    account: str,
    session_id: str,
    *,
    why: str,
    now: float,
    attempt: Attempt | None,
    is_audited: bool,
) -> None:
    """Remove the row of a session that never started; it may name `attempt`.

    `is_audited`: the audit has the start.
    """
    if attempt is not None and attempt.is_unanswered:
        order_stop(db, attempt.agent, attempt.internal_id, StopCause.UNANSWERED, now=now)
    internal_id = None if attempt is None else attempt.internal_id
    freed = delete_start(db, account, session_id, internal_id)
    if freed is not None and is_audited:
        db.append(SessionStartFailed(*freed.named(ITSELF, now), why=why))


def drop_unattempted(db: Database, now: float) -> None:
    """Free the ids that a previous process reserved, and whose rows name no attempt.

    The log has those of them whose attempts have failed.
    """
    for subject in delete_unattempted(db):
        last = db.execute(
            "SELECT kind FROM event WHERE object=:id AND account=:account"
            " ORDER BY sequence DESC LIMIT 1",
            {"account": subject.account, "id": subject.session_id},
        ).fetchone()
        if last is not None and last[0] in _UNDER_WAY:
            why = "the control plane ended during the start"
            db.append(SessionStartFailed(*subject.named(ITSELF, now), why=why))


def request_stop(
    db: Database, account: str, name: str, *, actor: Actor, now: float
) -> Session | None:
    """Set the stop mark of a session, by its id or internal id; None if no live one has it.

    With the mark no attempt begins. The stop of a confirmed session is ordered here, that of a
    start by the transaction that confirms it.
    """
    session_id = id_of(db, account, name) or name
    row = mark_to_stop(
        db, account, session_id, now=now, columns=f"{COLUMNS}, confirmed, traceparent"
    )
    if row is None:
        return None
    *columns, is_confirmed, traceparent = row
    session = session_of(columns)
    if is_confirmed and session.agent is not None and session.internal_id is not None:
        order_stop(db, session.agent, session.internal_id, StopCause.REQUESTED, now=now)
    subject = SessionSubject(
        account,
        session_id,
        session.application,
        session.tag,
        session.location,
        session.labels,
        traceparent,
    )
    db.append(SessionStopRequested(*subject.named(actor, now)))
    return session


def read_session(db: Database, account: str, session_id: str) -> Session | None:
    """Read a session by its id or internal id, an ended one until it is removed."""
    row = find_session(db, COLUMNS, account, session_id)
    return session_of(row) if row else None


def _row(new: NewSession) -> dict[str, Any]:
    """Return the columns of a new row; they replace all of a failed claim's."""
    identity = new.identity
    standby = new.standby
    attempt = None if standby is None else standby.attempt
    asked: dict[str, object] = {"ttl": new.ttl}
    if standby is not None:
        asked["request"] = standby.request
    return {
        "account": identity.account,
        "id": identity.session_id,
        "internal_id": None if attempt is None else attempt.internal_id,
        "agent": None if attempt is None else attempt.agent,
        "host": "" if attempt is None else attempt.host,
        "ports": json.dumps(port_values(() if standby is None else standby.ports)),
        "injected_env": env_json({} if standby is None else standby.injected_env),
        "state": State.CREATED if standby is None else State.RUNNING,
        "application": identity.application,
        "tag": identity.tag,
        "location": identity.location,
        "external_id": identity.external_id,
        "traceparent": identity.traceparent,
        "claim": json.dumps(asked),
        "nano_cpus": new.reservation.nano_cpus,
        "memory_bytes": new.reservation.memory_bytes,
        "created_ms": to_ms(new.created),
    }


def session_of(row: Sequence[Any]) -> Session:
    """Convert a row of `COLUMNS`, which are in the order of the fields."""
    values = list(row)
    values[4] = State(row[4])
    values[13:15] = from_ms(row[13]), from_ms(row[14])
    return Session(*values)
