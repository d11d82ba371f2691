"""Claims of standbys: which ones can be claimed, what of a failed one goes, and the held ones.

A claim is held from its commit until its session has ended. Where a host does not know of it, as
after a crash of either program, it is made again.
"""

import json
from dataclasses import dataclass

from controlplane.domain.contract import Claim, Port
from controlplane.domain.errors import StoppedDuringStartError
from controlplane.storage.engine.store import ITSELF, Actor, Database, record_event
from controlplane.storage.tables.session_rows import Attempt, note_unanswered, remove_labels
from tiltyard.contract import Identity


class StandbyTakenError(Exception):
    """A standby is a session's already, or may be, or its host is not served any more."""


@dataclass(frozen=True, slots=True)
class NewClaim:
    """The standby that a session is from its commit on, and who claims it."""

    attempt: Attempt
    ports: tuple[Port, ...]
    claim: Claim
    actor: Actor


@dataclass(frozen=True, slots=True)
class FailedClaim:
    """A claim whose row gives way to another; `unanswered` is that something may come of it."""

    session_id: str
    attempt: Attempt
    unanswered: bool


CAN_CLAIM = (
    "SELECT 1 FROM agent WHERE name=:agent AND removed_ms IS NULL AND revoked_ms IS NULL"
    " AND NOT EXISTS (SELECT 1 FROM session WHERE internal_id=:standby)"
    " AND NOT EXISTS (SELECT 1 FROM session WHERE account=:account AND id=:standby)"
    " AND NOT EXISTS (SELECT 1 FROM unanswered WHERE internal_id=:standby)"
)
"""Finds that a standby's host is served, and that neither the standby nor its id is in use."""


def check_standby(db: Database, account: str, standby: Attempt) -> None:
    """Check that a session of an account can have a standby.

    Raises:
        StandbyTakenError: It cannot.
    """
    values = {"account": account, "agent": standby.agent, "standby": standby.internal_id}
    if db.execute(CAN_CLAIM, values).fetchone() is None:
        raise StandbyTakenError


def undo_claim(db: Database, new: Identity, failed: FailedClaim, now: float) -> bool:
    """Undo a claim; True when its row is still there, since the next session has its id.

    Raises:
        StoppedDuringStartError: The session is to be stopped.
    """
    account, attempt = new.account, failed.attempt
    if failed.unanswered:
        note_unanswered(db, attempt.agent, attempt.internal_id, now)
    values = {"account": account, "id": failed.session_id, "standby": attempt.internal_id}
    row = db.execute(
        "SELECT stop_requested_ms FROM session WHERE account=:account AND id=:id"
        " AND internal_id=:standby AND NOT confirmed",
        values,
    ).fetchone()
    if row is None:
        return False
    if row[0] is not None:
        raise StoppedDuringStartError
    if failed.session_id == new.session_id:
        remove_labels(db, account, new.session_id)
        return True
    db.execute("DELETE FROM session WHERE account=:account AND id=:id", values)
    why = "the standby was not available"
    record_event(db, now, "session.not_started", account, ITSELF, failed.session_id, why=why)
    return False


def held_claim(db: Database, agent: str, internal_id: str) -> Claim | None:
    """Read the claim of a standby that a live session holds, to make it again."""
    row = db.execute(
        "SELECT account, id, application, tag, location, labels, external_id, claim FROM session"
        " WHERE internal_id=:internal_id AND agent=:agent AND ended_ms IS NULL"
        " AND stop_requested_ms IS NULL AND claim IS NOT NULL",
        {"internal_id": internal_id, "agent": agent},
    ).fetchone()
    if row is None:
        return None
    account, session_id, application, tag, location, labels, external_id, text = row
    place = account, session_id, application, tag, location
    identity = Identity(*place, json.loads(labels), external_id)
    asked = json.loads(text)
    return Claim(internal_id, identity, asked["ttl"], asked["request"], again=True)
