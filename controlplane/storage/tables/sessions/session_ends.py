"""Ends of sessions that their hosts do not report."""

from collections.abc import Collection, Iterable

from controlplane.domain.access.audit import ITSELF
from controlplane.domain.events.sessions import SessionEnded, SessionStartFailed
from controlplane.domain.sessions.stop_orders import StopCause
from controlplane.storage.engine.database import Database
from controlplane.storage.tables.sessions.session_queries import live_on
from controlplane.storage.tables.sessions.session_rows import delete_start, end_row
from controlplane.storage.tables.sessions.stop_orders import (
    confirm_stop,
    end_stop_orders,
    order_stop,
)
from tiltyard.contract import EndReason

PORTION = 100  # Sessions of a host that end in one transaction, some 10 ms of the writer


def _end_session(
    db: Database, agent: str, internal_id: str, *, reason: EndReason, now: float
) -> None:
    """End a session of an agent. Idempotent."""
    row = end_row(db, agent, internal_id, reason=reason, now=now)
    if row is not None:
        subject, host = row
        db.append(SessionEnded(*subject.named(ITSELF, now), reason=reason, host=host))


def end_stopped(db: Database, agent: str, internal_id: str, now: float) -> None:
    """End a session that its host, asked to stop it, does not have. Idempotent."""
    _end_session(db, agent, internal_id, reason=EndReason.STOPPED, now=now)
    confirm_stop(db, agent, internal_id, now)


def end_all_missing(db: Database, agent: str, internal_ids: Iterable[str], now: float) -> None:
    """Apply `end_missing` to each session."""
    for internal_id in internal_ids:
        end_missing(db, agent, internal_id, now=now)


def end_missing(
    db: Database,
    agent: str,
    internal_id: str,
    *,
    now: float,
    reason: EndReason = EndReason.ENGINE_ERROR,
) -> None:
    """End a session that its host no longer has; one that never ran is freed instead."""
    row = db.execute(
        "SELECT account, id FROM session"
        " WHERE internal_id=:internal_id AND agent=:agent AND NOT confirmed",
        {"internal_id": internal_id, "agent": agent},
    ).fetchone()
    if row is None:
        _end_session(db, agent, internal_id, reason=reason, now=now)
        return
    # The control plane died before the answer: stop the session if it still starts.
    order_stop(db, agent, internal_id, StopCause.UNANSWERED, now=now)
    freed = delete_start(db, row[0], row[1], internal_id)
    if freed is not None:
        db.append(SessionStartFailed(*freed.named(ITSELF, now)))


def lose_sessions(db: Database, agent: str, now: float, *, starts_too: bool = False) -> int:
    """End the next PORTION of the sessions of a removed or revoked host; return how many.

    Starts are left to their tasks by default. After the last one the stop orders end.
    """
    live = db.execute(
        "SELECT internal_id FROM session WHERE agent=:agent AND ended_ms IS NULL"
        " AND (confirmed OR :starts_too) LIMIT :most",
        {"agent": agent, "starts_too": starts_too, "most": PORTION},
    ).fetchall()
    for (internal_id,) in live:
        end_missing(db, agent, internal_id, now=now, reason=EndReason.HOST_LOST)
    if not live:
        end_stop_orders(db, agent, now)
    return len(live)


def give_up_sessions(db: Database, agent: str, starting: Collection[str], now: float) -> int:
    """End the next PORTION of an unresponsive host's sessions, to be stopped if it returns.

    The attempts in `starting` are left to their tasks. Returns how many were ended.
    """
    live = [each for each in live_on(db, agent) if each not in starting][:PORTION]
    for internal_id in live:
        order_stop(db, agent, internal_id, StopCause.GIVEN_UP, now=now)
        end_missing(db, agent, internal_id, now=now, reason=EndReason.HOST_LOST)
    return len(live)
