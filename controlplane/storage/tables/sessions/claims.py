"""Claims of standbys: availability, undo of failed claims, and held claims.

A claim is held from its commit until its session has ended. It is repeated if the host does not
know of it, as after a crash of either program. A host that lost the record of a session in a
prepared container reports the container as a standby in doubt; a claim then restores the record.
"""

import json

from controlplane.domain.access.audit import ITSELF
from controlplane.domain.errors import StoppedDuringStartError
from controlplane.domain.events.sessions import SessionStartFailed
from controlplane.domain.hosts.contract import Claim
from controlplane.domain.sessions.attempts import Attempt
from controlplane.domain.sessions.claims import StandbyTakenError
from controlplane.domain.sessions.stop_orders import StopCause
from controlplane.storage.engine.database import Database
from controlplane.storage.tables.sessions.session_rows import delete_start, remove_labels
from controlplane.storage.tables.sessions.stop_orders import order_stop
from tiltyard.contract import Identity, Resources
from tiltyard.runtime.clock import from_ms

CAN_CLAIM = (
    "SELECT 1 FROM agent WHERE name=:agent AND removed_ms IS NULL AND revoked_ms IS NULL"
    " AND NOT EXISTS (SELECT 1 FROM session WHERE internal_id=:standby)"
    " AND NOT EXISTS (SELECT 1 FROM session WHERE account=:account AND id=:standby)"
    " AND NOT EXISTS (SELECT 1 FROM stop_order WHERE internal_id=:standby)"
)
"""Finds a row if the host is in service, and neither the standby nor its id in use."""


def check_standby(db: Database, account: str, standby: Attempt) -> None:
    """Check that an account's session can claim a standby.

    Raises:
        StandbyTakenError: It cannot.
    """
    values = {"account": account, "agent": standby.agent, "standby": standby.internal_id}
    if db.execute(CAN_CLAIM, values).fetchone() is None:
        raise StandbyTakenError


def undo_claim(db: Database, new: Identity, failed: Attempt, now: float) -> bool:
    """Undo a claim; True if its row stays, since the next session has the same id.

    Raises:
        StoppedDuringStartError: The row has the stop mark.
    """
    account = new.account
    if failed.is_unanswered:
        order_stop(db, failed.agent, failed.internal_id, StopCause.UNANSWERED, now=now)
    row = db.execute(
        "SELECT id, stop_requested_ms FROM session"
        " WHERE internal_id=:standby AND account=:account AND NOT confirmed",
        {"account": account, "standby": failed.internal_id},
    ).fetchone()
    if row is None:
        return False
    session_id, stop_requested_ms = row
    if stop_requested_ms is not None:
        raise StoppedDuringStartError
    if session_id == new.session_id:
        remove_labels(db, account, session_id)
        return True
    freed = delete_start(db, account, session_id, failed.internal_id)
    if freed is not None:
        why = "the standby was not available"
        db.append(SessionStartFailed(*freed.named(ITSELF, now), why=why))
    return False


def held_claim(db: Database, agent: str, internal_id: str, now: float) -> Claim | None:
    """Read a live session's claim of a standby, to repeat it.

    A session that its host started has made no claim. If the host knows only the prepared
    container that such a session used, a claim of the container restores the identity and the
    rest of the lifetime.
    """
    row = db.execute(
        "SELECT account, id, application, tag, location, labels, external_id, traceparent,"
        " claim, created_ms, nano_cpus, memory_bytes FROM session"
        " WHERE internal_id=:internal_id AND agent=:agent AND ended_ms IS NULL"
        " AND stop_requested_ms IS NULL AND claim IS NOT NULL",
        {"internal_id": internal_id, "agent": agent},
    ).fetchone()
    if row is None:
        return None
    account, session_id, application, tag, location, labels, external_id, *rest = row
    traceparent, *asked_for = rest
    place = account, session_id, application, tag, location
    identity = Identity(*place, json.loads(labels), external_id, traceparent=traceparent)
    text, created_ms, *reserved = asked_for
    asked = json.loads(text)
    ttl = asked["ttl"]
    is_claim = "request" in asked
    if ttl is not None and not is_claim:
        ttl = max(1, ttl - round(now - from_ms(created_ms)))
    return Claim(
        internal_id,
        identity,
        ttl,
        asked["request"] if is_claim else "",
        reservation=Resources(*reserved),
        again=True,
    )
