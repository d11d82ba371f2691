"""The conditions of hosts as the log of events describes them: each change is one event."""

from collections.abc import Collection, Mapping

from controlplane.domain.access.audit import ITSELF, Actor
from controlplane.domain.events.agents import (
    AgentAvoided,
    AgentDiskFree,
    AgentDiskFull,
    AgentEmpty,
)
from controlplane.domain.events.sessions import (
    SessionDraining,
    SessionSubject,
    SessionUndrained,
)
from controlplane.domain.hosts.conditions import Avoidance, HostConditions
from controlplane.domain.hosts.contract import Drain, HostSession
from controlplane.domain.sessions.adoption import Verdicts
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.tables.sessions.reports import Reporter, write_all
from controlplane.storage.tables.sessions.session_rows import mark_draining
from tiltyard.runtime.clock import from_ms, to_ms

PORTION = 100  # Sessions that are marked in one transaction


def note_conditions(db: Database, hosts: Mapping[str, HostConditions], now: float) -> None:
    """Write the conditions of hosts, by agent."""
    for agent, conditions in hosts.items():
        row = db.execute(
            "SELECT disk_full, empty, avoided_until_ms FROM agent"
            " WHERE name=:agent AND removed_ms IS NULL",
            {"agent": agent},
        ).fetchone()
        if row is None:
            continue
        was_full, was_empty, avoided_until_ms = row
        before = HostConditions(bool(was_full), bool(was_empty))
        _note_states(db, agent, before, conditions, now=now)
        if conditions.avoidance is not None:
            known = avoided_until_ms or 0
            _note_avoidance(db, agent, conditions.avoidance, known_until_ms=known, now=now)


def _note_states(
    db: Database, agent: str, before: HostConditions, after: HostConditions, *, now: float
) -> None:
    if before[:2] == after[:2]:
        return
    db.execute(
        "UPDATE agent SET disk_full=:is_full, empty=:is_empty WHERE name=:agent",
        {"agent": agent, "is_full": after.is_disk_full, "is_empty": after.is_empty},
    )
    db.changed(Topic.HOST, agent)
    reporter = Actor(agent)
    if after.is_disk_full and not before.is_disk_full:
        db.append(AgentDiskFull("", agent, reporter, now))
    if before.is_disk_full and not after.is_disk_full:
        db.append(AgentDiskFree("", agent, reporter, now))
    if after.is_empty and not before.is_empty:
        db.append(AgentEmpty("", agent, reporter, now))


def _note_avoidance(
    db: Database, agent: str, avoidance: Avoidance, *, known_until_ms: int, now: float
) -> None:
    """Write an avoidance; one that goes on is no event."""
    until_ms = to_ms(avoidance.until)
    if until_ms <= known_until_ms:
        return
    db.execute(
        "UPDATE agent SET avoided_until_ms=:until WHERE name=:agent",
        {"agent": agent, "until": until_ms},
    )
    db.changed(Topic.HOST, agent)
    if known_until_ms < to_ms(now):
        reason = avoidance.reason
        error = avoidance.error
        db.append(AgentAvoided("", agent, ITSELF, now, until=until_ms, reason=reason, error=error))


def note_draining(db: Database, agent: str, now: float) -> bool:
    """Mark the next PORTION of a host's live sessions with its newest drain order.

    Returns whether all are marked. From then on a session is marked with its first report.
    """
    drain, known = _read_drain(db, agent)
    if known == drain.mark:
        return True
    if _mark_sessions(db, agent, drain, now, most=PORTION) == PORTION:
        return False
    db.execute(
        "UPDATE agent SET sessions_draining=:mark WHERE name=:agent",
        {"agent": agent, "mark": drain.mark},
    )
    db.changed(Topic.HOST, agent)
    return True


def write_reported(db: Database, by: Reporter, sessions: Collection[HostSession]) -> Verdicts:
    """Do `write_all`, and mark sessions that are reported first when the others are marked."""
    verdicts = write_all(db, by, sessions)
    drain, known = _read_drain(db, by.agent)
    if drain.draining and known == drain.mark:
        live = sum(not session.state.ended for session in sessions)
        if live:
            _mark_sessions(db, by.agent, drain, by.now, most=live)
    return verdicts


def _read_drain(db: Database, agent: str) -> tuple[Drain, int]:
    """Read the newest drain order of an agent, and the mark that its sessions have."""
    row = db.execute(
        "SELECT drain_revision, draining, drain_deadline_ms, sessions_draining FROM agent"
        " WHERE name=:agent",
        {"agent": agent},
    ).fetchone()
    if row is None:
        return Drain(), 0
    revision, draining, deadline_ms, known = row
    return Drain(revision, bool(draining), from_ms(deadline_ms)), known


def _mark_sessions(db: Database, agent: str, drain: Drain, now: float, *, most: int) -> int:
    """Mark live sessions that have another mark, each with an event; return how many."""
    marked = mark_draining(db, agent, drain.mark, most=most)
    reporter = Actor(agent)
    deadline = to_ms(drain.deadline)
    for *columns, host in marked:
        named = SessionSubject(*columns).named(reporter, now)
        if drain.draining:
            db.append(SessionDraining(*named, host=host, deadline=deadline))
        else:
            db.append(SessionUndrained(*named, host=host))
    return len(marked)
