"""Session reports of agents, written to the database: ownership, adoption, and what to stop.

An agent is trusted only for what was placed on it:

- the attempt that a row names on this agent is written, and stopped if its row has ended or has
  the stop mark;
- the claim of a standby that a row names is repeated, and so is what the host has lost of a
  session that used a prepared container, which it reports as a standby in doubt; other standbys
  are left alone, unless they may have been claimed;
- what this agent has left unanswered is stopped;
- what has no valid ticket, an account that this database does not know, or was not ordered in a
  time that this database has lost, is left alone: it had a row that is gone;
- what belongs to a removed account is stopped;
- another is adopted as it was placed if the id is free, as after the database was lost.

If the id is not free, the later start wins, whichever is reported first; the other is stopped like
an unanswered attempt. A start under way is waited for. An ended row never comes back.
"""

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import KW_ONLY, asdict, dataclass, field
from enum import Enum, auto

from controlplane.domain.contract import HostSession, Placed
from controlplane.storage.engine.store import Actor, Database, Store, record_event
from controlplane.storage.tables import lost_times
from controlplane.storage.tables.session_rows import (
    add_labels,
    end_missing,
    env_json,
    is_unanswered,
    lose_sessions,
    note_stopped,
    note_unanswered,
    port_values,
    remove_ended_parts,
    remove_labels,
)
from tiltyard.contract import State
from tiltyard.runtime.clock import to_ms

ReadTicket = Callable[[str, HostSession], Placed | None]
"""Returns what the ticket of an agent's session says; None if it is not valid."""

_REPORTED = (
    "confirmed, state, host, ports, injected_env, started_ms, end_reason, exit_code, detail"
)
"""The columns that hosts report; `confirmed` is that they report the session at all."""

_PARSED = _REPORTED.replace("ports, injected_env", "json(ports), json(injected_env)")


class Verdict(Enum):
    """What to do with a reported session."""

    KEEP = auto()
    STOP = auto()
    STOP_REQUESTED = auto()  # Stop it as a caller requested
    WAIT = auto()  # Evaluate it later: another start of its id is under way
    CLAIM = auto()  # Repeat the claim that the database holds for this standby
    UNCLAIMED = auto()  # It belongs to no row: show it to operators only


@dataclass(frozen=True, slots=True)
class Superseded:
    """A session replaced by a later one of its id, to be stopped."""

    agent: str
    internal_id: str


@dataclass(slots=True)
class Evaluation:
    """The result of a report: verdicts by internal id."""

    verdicts: dict[str, Verdict] = field(default_factory=dict)
    superseded: list[Superseded] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Reporter:
    """The reporting agent and the time. `keep_ended`: retention of ended sessions in seconds."""

    agent: str
    read_ticket: ReadTicket
    now: float
    keep_ended: float


@dataclass(eq=False)
class Reports:
    """Writes reports of agents.

    Adopts sessions with a valid ticket, unless they ended more than `keep_ended` seconds ago.
    """

    store: Store
    _: KW_ONLY
    read_ticket: ReadTicket
    keep_ended: float

    async def write(
        self,
        agent: str,
        sessions: Iterable[HostSession],
        now: float,
        starting: Collection[str] = (),
    ) -> Evaluation:
        """Write and evaluate reported sessions, except those of attempts in `starting`."""
        reported = [s for s in sessions if s.internal_id not in starting]
        if not reported:
            return Evaluation()
        return await self.store.run(write_all, self._reporter(agent, now), reported)

    async def write_stopped(self, agent: str, session: HostSession, now: float) -> None:
        """Write a session as its host answered a stop, and that it is carried out."""
        await self.store.run(write_stopped, self._reporter(agent, now), session)

    def _reporter(self, agent: str, now: float) -> _Reporter:
        return _Reporter(agent, self.read_ticket, now, self.keep_ended)


def write_all(db: Database, by: _Reporter, sessions: Collection[HostSession]) -> Evaluation:
    """Write and evaluate reported sessions."""
    into = Evaluation()
    unchanged = _unchanged(db, by, sessions)
    for session in sessions:
        internal_id = session.internal_id
        is_known = internal_id in unchanged
        into.verdicts[internal_id] = Verdict.KEEP if is_known else _evaluate(db, by, session, into)
    return into


def write_stopped(db: Database, by: _Reporter, session: HostSession) -> None:
    """Do `write_all` and `note_stopped` of one session."""
    write_all(db, by, (session,))
    note_stopped(db, by.agent, by.now, session.internal_id)


def _unchanged(db: Database, by: _Reporter, sessions: Collection[HostSession]) -> set[str]:
    """Return the live sessions that need no evaluation, since their rows say the same.

    A snapshot consists of these. One query reads them in one step, since each step of SQLite
    waits for the interpreter lock, which the event loop of a starting control plane holds. A
    `+` keeps SQLite from using the column's index, and so from reading all sessions of the agent.
    """
    live = {s.internal_id: s for s in sessions if not (s.is_standby or s.state.ended)}
    [rows] = db.execute(
        f"SELECT json_group_array(json_array(internal_id, {_PARSED})) FROM session"  # noqa: S608
        " JOIN agent ON agent.name = session.agent"
        " WHERE internal_id IN (SELECT value FROM json_each(:ids)) AND +agent=:agent"
        " AND +ended_ms IS NULL AND stop_requested_ms IS NULL AND revoked_ms IS NULL",
        {"ids": json.dumps(list(live)), "agent": by.agent},
    ).fetchone()
    return {
        internal_id
        for internal_id, *row in json.loads(rows)
        if row == [*_values(live[internal_id]).values()]
    }


def _evaluate(db: Database, by: _Reporter, session: HostSession, into: Evaluation) -> Verdict:
    row = db.execute(
        f"SELECT session.agent, ended_ms, stop_requested_ms, revoked_ms, {_REPORTED} FROM session"  # noqa: S608
        " LEFT JOIN agent ON agent.name = session.agent WHERE internal_id=?",
        (session.internal_id,),
    ).fetchone()
    if row is None:
        return _evaluate_unknown(db, by, session, into)
    owner, ended_ms, stop_requested_ms, revoked_ms, *reported = row
    if owner != by.agent:
        return _left_alone(session)
    if ended_ms is not None:
        return _stopped(session)
    if revoked_ms is not None:  # the last report of a revoked agent
        _write(db, by, session, reported)
        lose_sessions(db, by.agent, by.now)
        return Verdict.STOP
    # The host may report it as a standby, still or again.
    if not session.is_standby:
        _write(db, by, session, reported)
    elif session.state.ended:
        end_missing(db, by.agent, session.internal_id, now=by.now)
    if session.state.ended:
        return Verdict.KEEP
    verdict = Verdict.CLAIM if session.is_standby else Verdict.KEEP
    return verdict if stop_requested_ms is None else Verdict.STOP_REQUESTED


def _evaluate_unknown(
    db: Database, by: _Reporter, session: HostSession, into: Evaluation
) -> Verdict:
    served = db.execute(
        "SELECT 1 FROM agent WHERE name=? AND removed_ms IS NULL AND revoked_ms IS NULL",
        (by.agent,),
    )
    if session.state is State.CREATED or not served.fetchone():
        return Verdict.KEEP  # it may still be undone; or the agent is gone
    if session.in_doubt or is_unanswered(db, by.agent, session.internal_id):
        return _stopped(session)
    account = db.execute(
        "SELECT created_ms, removed_ms FROM account WHERE name=?", (session.identity.account,)
    ).fetchone()
    placed = _lost(db, by, session)
    if account is None or placed is None:
        return _left_alone(session)
    created_ms, removed_ms = account
    if removed_ms is not None:
        return _stopped(session)
    if session.state.ended:
        # An older session belonged to a removed account of that name.
        age = by.now - session.end_time if session.end_time else 0.0
        if age >= by.keep_ended or to_ms(session.create_time) < created_ms:
            return Verdict.KEEP
    return _adopt(db, by, session, placed=placed, into=into)


def _lost(db: Database, by: _Reporter, session: HostSession) -> Placed | None:
    """Return what was placed, if this database may have lost the row of a session."""
    placed = None if session.is_standby else by.read_ticket(by.agent, session)
    if placed is None:
        return None
    is_lost = lost_times.cover(db, placed.issued_ms, now=by.now, kept=by.keep_ended)
    return placed if is_lost else None


def _left_alone(session: HostSession) -> Verdict:
    return Verdict.KEEP if session.state.ended or session.is_standby else Verdict.UNCLAIMED


def _stopped(session: HostSession) -> Verdict:
    return Verdict.KEEP if session.state.ended else Verdict.STOP


def _adopt(
    db: Database, by: _Reporter, session: HostSession, *, placed: Placed, into: Evaluation
) -> Verdict:
    identity = session.identity
    reported = Superseded(by.agent, session.internal_id)
    values = {
        "account": identity.account,
        "id": identity.session_id,
        "state": session.state,
        "internal_id": session.internal_id,
        "started": to_ms(session.create_time),
    }
    # An earlier start gives way to this one; an ended session stays ended.
    rival = db.execute(
        "SELECT agent, internal_id, confirmed OR ended_ms IS NOT NULL, ended_ms IS NOT NULL,"
        " (ended_ms IS NULL OR adopted_ended) AND (coalesce(started_ms, 0),"
        " coalesce(internal_id, '')) < (:started, :internal_id)"
        " FROM session WHERE account=:account AND id=:id",
        values,
    ).fetchone()
    if rival is None:
        db.execute(
            "INSERT INTO session(account, id, state, application, tag, location, labels,"
            " external_id, nano_cpus, memory_bytes, created_ms)"
            " VALUES (:account, :id, :state, '', '', '', '{}', '', 0, 0, 0)",
            values,
        )
    else:
        agent, internal_id, is_decided, has_ended, gives_way = rival
        other = Superseded(agent or "", internal_id or "")
        if session.state.ended:
            return Verdict.KEEP
        if not is_decided:
            return Verdict.WAIT
        if not gives_way:
            _supersede(db, by, session, gone=reported, kept=other)
            return Verdict.STOP
        if not has_ended:
            _supersede(db, by, session, gone=other, kept=reported)
            into.superseded.append(other)
    _take_row(db, by, session, placed)
    actor = Actor(by.agent)
    record_event(
        db, "session.adopted", identity.account, identity.session_id, actor=actor, now=by.now
    )
    return _evaluate(db, by, session, into)


def _supersede(
    db: Database, by: _Reporter, session: HostSession, *, gone: Superseded, kept: Superseded
) -> None:
    note_unanswered(db, gone.agent, gone.internal_id, by.now)
    account = session.identity.account
    session_id = session.identity.session_id
    data = {"stopped": asdict(gone), "kept": asdict(kept)}
    record_event(
        db, "session.duplicate", account, session_id, actor=Actor(by.agent), now=by.now, **data
    )


def _take_row(db: Database, by: _Reporter, session: HostSession, placed: Placed) -> None:
    """Point the row of an id to this session; its players and stop mark stay."""
    identity = session.identity
    db.execute(
        "UPDATE session SET internal_id=:internal_id, agent=:agent, application=:application,"
        " tag=:tag, location=:location, labels=:labels, external_id=:external_id,"
        " nano_cpus=:nano_cpus, memory_bytes=:memory_bytes, created_ms=:created, ended_ms=NULL,"
        " adopted_ended=:ended WHERE account=:account AND id=:session_id",
        {
            **asdict(identity),
            "nano_cpus": placed.nano_cpus,
            "memory_bytes": placed.memory_bytes,
            "internal_id": session.internal_id,
            "agent": by.agent,
            "labels": json.dumps(dict(identity.labels)),
            "created": to_ms(min(session.create_time, by.now)),
            "ended": session.state.ended,
        },
    )
    remove_labels(db, identity.account, identity.session_id)
    add_labels(db, identity.account, identity.session_id, identity.labels)


def _write(db: Database, by: _Reporter, session: HostSession, before: list[object]) -> None:
    """Write the report of a live row's session, if it differs from the row (`before`)."""
    ended = session.state.ended
    reported = _reported(session)
    if [*reported.values()] == before and not ended:
        return
    # A host's wrong clock must not change the retention of a row.
    end_time = min(session.end_time or by.now, by.now) if ended else None
    account, session_id = db.execute(
        "UPDATE session SET confirmed=:confirmed, state=:state, host=:host, ports=:ports,"
        " injected_env=:injected_env, started_ms=:started_ms, end_reason=:end_reason,"
        " exit_code=:exit_code, detail=:detail, ended_ms=max(created_ms, :end),"
        " claim=CASE WHEN :ended THEN NULL ELSE claim END"
        " WHERE internal_id=:internal_id RETURNING account, id",
        {**reported, "end": to_ms(end_time), "ended": ended, "internal_id": session.internal_id},
    ).fetchone()
    if ended:
        remove_ended_parts(db, account, session_id)
        actor = Actor(by.agent)
        why = session.end_reason
        record_event(db, "session.ended", account, session_id, actor=actor, now=by.now, reason=why)


def _reported(session: HostSession) -> dict[str, object]:
    values = _values(session)
    ports = json.dumps(values["ports"])
    env = env_json(session.injected_env)
    return values | {"ports": ports, "injected_env": env}


def _values(session: HostSession) -> dict[str, object]:
    """Return what `_PARSED` selects from a row that says the same."""
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
    }
