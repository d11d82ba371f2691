"""The contact with hosts in the database: reports, downtime, and hosts given up as lost."""

from collections.abc import Collection

from controlplane.domain.access.audit import ITSELF
from controlplane.domain.events.agents import AgentBack, AgentLost, AgentUnresponsive
from controlplane.domain.hosts.written import Written
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.tables.sessions.session_ends import PORTION, give_up_sessions
from tiltyard.runtime.clock import to_ms


def note_report(db: Database, agent: str, now: float, written: Written) -> None:
    """Write that a host has reported, and which of its reports are in rows.

    It is a change only if the host was unresponsive: the rest only a later process reads, and is
    written each minute.
    """
    was_lost = _was_lost(db, agent)
    db.execute(
        "UPDATE agent SET last_report_ms=:now, downtime_ms=0, lost_ms=NULL,"
        " written_incarnation=:incarnation, written_sequence=:sequence WHERE name=:agent",
        {"agent": agent, "now": to_ms(now), **written._asdict()},
    )
    if was_lost is not None:
        db.changed(Topic.HOST, agent)
        db.append(AgentBack("", agent, ITSELF, now, was_lost=was_lost))


def note_downtime(db: Database, agent: str, seconds: float, now: float) -> None:
    """Write a host's downtime, if it has not been removed."""
    was_lost = _was_lost(db, agent)
    sql = "UPDATE agent SET downtime_ms=:downtime WHERE name=:agent AND removed_ms IS NULL"
    written = db.execute(sql, {"agent": agent, "downtime": to_ms(seconds)})
    if written.rowcount:
        db.changed(Topic.HOST, agent)
        if was_lost is None:
            db.append(AgentUnresponsive("", agent, ITSELF, now))


def lose(db: Database, agent: str, starting: Collection[str], now: float) -> bool:
    """Give up PORTION of an unresponsive host's sessions, after the last ones the host.

    Those in `starting` are left to their tasks. Those that still run when it is back are stopped.
    Returns whether all are given up; a crash between two portions repeats nothing.
    """
    values = {"agent": agent, "now": to_ms(now)}
    in_service = "name=:agent AND lost_ms IS NULL AND removed_ms IS NULL AND revoked_ms IS NULL"
    if db.execute(f"SELECT 1 FROM agent WHERE {in_service}", values).fetchone() is None:  # noqa: S608
        return True
    if give_up_sessions(db, agent, starting, now) == PORTION:
        return False
    db.execute(f"UPDATE agent SET lost_ms=:now WHERE {in_service}", values)  # noqa: S608
    db.changed(Topic.HOST, agent)
    db.append(AgentLost("", agent, ITSELF, now))
    return True


def _was_lost(db: Database, agent: str) -> bool | None:
    """Return whether the sessions of an unresponsive host were given up; None if it responds."""
    sql = "SELECT lost_ms IS NOT NULL, downtime_ms FROM agent WHERE name=:agent"
    row = db.execute(sql, {"agent": agent}).fetchone()
    return bool(row[0]) if row is not None and any(row) else None
