"""Sessions in the database, as callers request them. `reports.py` has agents' reports."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from controlplane.domain.errors import (
    AgentRefusedError,
    ConflictError,
    QuotaExceededError,
    StoppedDuringStartError,
    UnauthorizedError,
)
from controlplane.storage.engine.statements import write_row
from controlplane.storage.engine.store import ITSELF, Actor, Database, record_event
from controlplane.storage.tables.claims import FailedClaim, NewClaim, check_standby, undo_claim
from controlplane.storage.tables.quota_use import passed_limit, quota_of
from controlplane.storage.tables.session_rows import (
    Attempt,
    add_labels,
    env_json,
    find_session,
    id_of,
    note_unanswered,
    port_values,
)
from tiltyard.contract import ErrorReason, Identity, Resources, State
from tiltyard.runtime.clock import from_ms, to_ms

COLUMNS = (
    "account, id, internal_id, agent, state, application, tag, location, host, ports,"
    " labels, external_id, injected_env, created_ms, ended_ms, detail,"
    " player_count"
)


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session whose id is to be reserved; `ttl` in seconds."""

    identity: Identity
    reservation: Resources
    created: float
    claim: NewClaim | None = None
    ttl: int | None = None


class Session(NamedTuple):
    """A session's row; a tuple, since lists make thousands.

    `internal_id`, `agent` and `host` are those of the newest attempt, None and "" before the
    first. `ports`, `labels` and `injected_env` are JSON
    text.
    """

    account: str
    id: str
    internal_id: str | None
    agent: str | None
    state: State
    application: str
    tag: str
    location: str
    host: str
    ports: str
    labels: str
    external_id: str
    injected_env: str
    created: float
    ended: float | None
    detail: str
    player_count: int


def reserve(
    db: Database,
    new: NewSession,
    *,
    failed: FailedClaim | None = None,
    first: Attempt | None = None,
    first_of: Actor | None = None,
) -> bool:
    """Reserve the id and the quota, and the standby that `new` claims.

    Replaces the row of a `failed` claim of the same start; its players stay with its id. A claim
    is audited here, a cold start with its first attempt: cheap refusals must not fill the audit.

    `first` and `first_of` are written as by `begin_attempt`. Returns whether the row names it:
    not if its agent was removed or revoked.

    Raises:
        StoppedDuringStartError: The row of the failed claim has the stop mark.
        UnauthorizedError: The account was removed meanwhile.
        StandbyTakenError: The standby is not available.
        ConflictError: A session of the account has the id, or has it as its internal id.
        QuotaExceededError: It would exceed a limit of the account.
    """
    account = new.identity.account
    session_id = new.identity.session_id
    claim = new.claim
    is_ours = failed is not None and undo_claim(db, new.identity, failed, new.created)
    quota = quota_of(db, account)
    if quota is None:
        raise UnauthorizedError
    if claim is not None:
        check_standby(db, account, claim.attempt)
    if not is_ours and id_of(db, account, session_id) is not None:
        raise ConflictError("the session id is in use")
    write_row(db, "session", _row(new), "account, id")
    limit = passed_limit(db, account, quota)
    if limit is not None:
        raise QuotaExceededError(limit)
    add_labels(db, account, session_id, new.identity.labels)
    if claim is not None and not is_ours:
        record_event(
            db, "session.reserved", account, session_id, actor=claim.actor, now=new.created
        )
    if first is None:
        return False
    try:
        begin_attempt(db, account, session_id, first, now=new.created, first_of=first_of)
    except AgentRefusedError:
        return False
    return True


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
    values = {"account": account, "id": session_id, **attempt._asdict()}
    begun = db.execute(
        "UPDATE session SET internal_id=:internal_id, agent=:agent, host=:host"
        " WHERE account=:account AND id=:id AND stop_requested_ms IS NULL"
        " AND EXISTS (SELECT 1 FROM agent WHERE name=:agent AND removed_ms IS NULL"
        " AND revoked_ms IS NULL)",
        values,
    )
    if not begun.rowcount:
        to_stop = db.execute(
            "SELECT 1 FROM session WHERE account=:account AND id=:id"
            " AND stop_requested_ms IS NOT NULL",
            values,
        )
        if to_stop.fetchone():
            raise StoppedDuringStartError
        raise AgentRefusedError(ErrorReason.DRAINING, "the agent was removed")
    if first_of is not None:
        record_event(db, "session.reserved", account, session_id, actor=first_of, now=now)


def end_attempt(
    db: Database, account: str, session_id: str, attempt: Attempt, *, now: float, unanswered: bool
) -> None:
    """Remove a failed attempt from its session, unless its host has reported it meanwhile.

    `unanswered`: it may have started a session.
    """
    if unanswered:
        note_unanswered(db, attempt.agent, attempt.internal_id, now)
    db.execute(
        "UPDATE session SET internal_id=NULL, agent=NULL, host=''"
        " WHERE account=:account AND id=:id AND internal_id=:attempt AND NOT confirmed",
        {"account": account, "id": session_id, "attempt": attempt.internal_id},
    )


def free(
    db: Database,
    account: str,
    session_id: str,
    *,
    why: str,
    now: float,
    attempt: Attempt | None,
    unanswered: bool,
    is_recorded: bool,
) -> None:
    """Remove the row of a session that never started; it may name `attempt`.

    `unanswered`: that may have started a session. `is_recorded`: the audit has the start.
    """
    if attempt is not None and unanswered:
        note_unanswered(db, attempt.agent, attempt.internal_id, now)
    db.execute(
        "DELETE FROM session WHERE account=:account AND id=:id AND NOT confirmed"
        " AND (internal_id IS NULL OR internal_id=:attempt)",
        {"account": account, "id": session_id, "attempt": attempt and attempt.internal_id},
    )
    if is_recorded:
        record_event(
            db, "session.not_started", account, session_id, actor=ITSELF, now=now, why=why
        )


def request_stop(
    db: Database, account: str, name: str, *, actor: Actor, now: float
) -> Session | None:
    """Set the stop mark of a session, by its id or internal id; None if no live one has it.

    With the mark no attempt begins, a confirmed session is stopped, and an absent host gets the
    stop when it returns.
    """
    session_id = id_of(db, account, name) or name
    row = db.execute(
        "UPDATE session SET stop_requested_ms = coalesce(stop_requested_ms, :now)"  # noqa: S608
        f" WHERE account=:account AND id=:id AND ended_ms IS NULL RETURNING {COLUMNS}",
        {"account": account, "id": session_id, "now": to_ms(now)},
    ).fetchone()
    if row is None:
        return None
    record_event(db, "session.stop", account, session_id, actor=actor, now=now)
    return session_of(row)


def drop_unattempted(db: Database) -> None:
    """Free ids that a previous process reserved without an attempt."""
    db.execute("DELETE FROM session WHERE agent IS NULL")


def read_session(db: Database, account: str, session_id: str) -> Session | None:
    """Read a session by its id or internal id, an ended one until it is removed."""
    row = find_session(db, COLUMNS, account, session_id)
    return session_of(row) if row else None


def _row(new: NewSession) -> dict[str, Any]:
    """Return the columns of a new row; they replace all of a failed claim's."""
    identity = new.identity
    claim = new.claim
    names: dict[str, str | None] = {"internal_id": None, "agent": None, "host": ""}
    asked: dict[str, object] = {"ttl": new.ttl}
    env = "{}"
    if claim is not None:
        names = claim.attempt._asdict()
        env = env_json(claim.injected_env)
        asked = {"ttl": claim.claim.ttl, "request": claim.claim.request}
    return {
        "account": identity.account,
        "id": identity.session_id,
        **names,
        "ports": json.dumps(port_values(() if claim is None else claim.ports)),
        "injected_env": env,
        "state": State.CREATED if claim is None else State.RUNNING,
        "application": identity.application,
        "tag": identity.tag,
        "location": identity.location,
        "labels": json.dumps(dict(identity.labels)),
        "external_id": identity.external_id,
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
