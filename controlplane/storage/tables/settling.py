"""Settling what agents report: which session is whose, which stays, which is stopped.

An agent speaks only for what was placed on it, and is believed no more than that:

- the attempt that a row names on this agent is written; when it is to end, or has, it is stopped;
- a standby that a row names was claimed and does not know: it is claimed again; one that no row
  names is no session, and is let be unless it may have been claimed by nobody knows whom;
- what this agent has left unanswered is stopped;
- what has no valid ticket, or an account that this database does not know, as after it was lost,
  is let be: it is neither anybody's session nor ours to stop;
- what is of an account that was removed is stopped;
- another is adopted: its account has the id free, as after the database was lost.

If the id is not free, the later start stays, whichever is reported first; the other is
stopped, as if unanswered. A row whose start is in progress is waited for. A row that ended never
comes back.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import Enum, auto

from controlplane.domain.contract import HostSession
from controlplane.storage.engine.store import Actor, Database
from controlplane.storage.tables.session_rows import (
    end_missing,
    lose_sessions,
    ports_json,
    record,
    remove_labels,
    replace_labels,
)
from controlplane.storage.tables.unanswered import is_unanswered, note_unanswered
from tiltyard.contract import State

IsOurs = Callable[[str, HostSession], bool]
"""Returns whether an agent's session has a valid ticket."""


_TOLD = "confirmed, state, host, ports, injected_env, started_ms, end_reason, exit_code, detail"
"""The columns that hosts tell; `confirmed` is that they tell of it at all."""


class Verdict(Enum):
    """What is to be done about a reported session."""

    KEEP = auto()
    STOP = auto()
    STOP_REQUESTED = auto()
    """To be stopped, since its caller asked for it."""
    WAIT = auto()
    """To be judged again: another start of its id is not settled yet."""
    CLAIM = auto()
    """It is a standby whose claim the database holds: to be claimed again."""
    UNCLAIMED = auto()
    """It is nobody's: operators are shown it, and nothing is done."""


@dataclass(frozen=True, slots=True)
class Superseded:
    """A session that gave way to a later one of its id: to be stopped, wherever it is."""

    agent: str
    internal_id: str


@dataclass(slots=True)
class Settlement:
    """What came of settling: a verdict for each session, by internal id."""

    verdicts: dict[str, Verdict] = field(default_factory=dict)
    superseded: list[Superseded] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Reporter:
    """Who reports, and when; `keep_ended_ms` is how long what has ended is remembered."""

    agent: str
    is_ours: IsOurs
    now_ms: int
    keep_ended_ms: int


def settle(db: Database, by: Reporter, session: HostSession, into: Settlement) -> None:
    """Write a reported session and judge it, within a transaction."""
    into.verdicts[session.internal_id] = _judge(db, by, session, into)


def _judge(db: Database, by: Reporter, session: HostSession, into: Settlement) -> Verdict:
    row = db.execute(
        f"SELECT session.agent, ended_ms, stop_requested_ms, revoked_ms, {_TOLD} FROM session"  # noqa: S608
        " LEFT JOIN agent ON agent.name = session.agent WHERE internal_id=?",
        (session.internal_id,),
    ).fetchone()
    if row is None:
        return _judge_unknown(db, by, session, into)
    owner, ended_ms, stop_requested_ms, revoked_ms, *told = row
    if owner != by.agent:
        return _left_alone(session)
    if ended_ms is not None:
        return _stopped(session)
    if revoked_ms is not None:  # the last words of an agent that is not asked any more
        _write(db, by, session, told)
        lose_sessions(db, by.agent, by.now_ms)
        return Verdict.STOP
    return _judge_own(db, by, session, told, stopped=stop_requested_ms is not None)


def _judge_own(
    db: Database, by: Reporter, session: HostSession, told: list[object], *, stopped: bool
) -> Verdict:
    """Judge what a live row names; for the host it may still be a standby, or be one again."""
    if not session.is_standby:
        _write(db, by, session, told)
    elif session.state.ended:
        end_missing(db, by.agent, session.internal_id, by.now_ms)
    if stopped and not session.state.ended:
        return Verdict.STOP_REQUESTED
    return Verdict.CLAIM if session.is_standby and not session.state.ended else Verdict.KEEP


def _judge_unknown(db: Database, by: Reporter, session: HostSession, into: Settlement) -> Verdict:
    served = db.execute(
        "SELECT 1 FROM agent WHERE name=? AND removed_ms IS NULL AND revoked_ms IS NULL",
        (by.agent,),
    )
    if session.state is State.CREATED or not served.fetchone():
        return Verdict.KEEP  # it may still be undone; or these are the agent's last words
    if session.in_doubt or is_unanswered(db, by.agent, session.internal_id):
        return _stopped(session)
    account = db.execute(
        "SELECT created_ms, removed_ms FROM account WHERE name=?", (session.identity.account,)
    ).fetchone()
    if session.is_standby or account is None or not by.is_ours(by.agent, session):
        return _left_alone(session)
    created_ms, removed_ms = account
    if removed_ms is not None:
        return _stopped(session)
    if session.state.ended and not _is_remembered(by, session, created_ms):
        return Verdict.KEEP
    return _adopt(db, by, session, into)


def _left_alone(session: HostSession) -> Verdict:
    return Verdict.KEEP if session.state.ended or session.is_standby else Verdict.UNCLAIMED


def _stopped(session: HostSession) -> Verdict:
    return Verdict.KEEP if session.state.ended else Verdict.STOP


def _is_remembered(by: Reporter, session: HostSession, account_created_ms: int) -> bool:
    """Return whether an ended session would still be known here, and to this account.

    What an account of the same name had that was removed is nobody's.
    """
    age_ms = by.now_ms - (session.end_ms or by.now_ms)
    return age_ms < by.keep_ended_ms and session.create_ms >= account_created_ms


@dataclass(frozen=True, slots=True)
class _Rival:
    """The row that has the id already."""

    internal_id: str | None
    agent: str | None
    is_settled: bool
    has_ended: bool
    adopted_ended: bool
    started_ms: int | None

    @property
    def named(self) -> Superseded:
        return Superseded(self.agent or "", self.internal_id or "")

    def gives_way(self, session: HostSession) -> bool:
        """Return whether it was started before this one; what ended here stays ended."""
        is_earlier = (self.started_ms or 0, self.internal_id or "") < (
            session.create_ms,
            session.internal_id,
        )
        return is_earlier and (not self.has_ended or self.adopted_ended)


def _adopt(db: Database, by: Reporter, session: HostSession, into: Settlement) -> Verdict:
    key = (session.identity.account, session.identity.session_id)
    rival, reported = _rival(db, key), Superseded(by.agent, session.internal_id)
    if rival is None:
        db.execute(
            "INSERT INTO session(account, id, state, application, tag, location, labels,"
            " external_id, nano_cpus, memory_bytes, created_ms)"
            " VALUES (:account, :id, :state, '', '', '', '{}', '', 0, 0, 0)",
            {"account": key[0], "id": key[1], "state": session.state},
        )
    elif session.state.ended:
        return Verdict.KEEP
    elif not rival.is_settled:
        return Verdict.WAIT
    elif not rival.gives_way(session):
        _supersede(db, by, key, gone=reported, kept=rival.named)
        return Verdict.STOP
    elif not rival.has_ended:
        _supersede(db, by, key, gone=rival.named, kept=reported)
        into.superseded.append(rival.named)
    _take_row(db, by, session)
    record(db, "session.adopted", Actor(by.agent), key, by.now_ms)
    return _judge(db, by, session, into)


def _rival(db: Database, key: tuple[str, str]) -> _Rival | None:
    row = db.execute(
        "SELECT internal_id, agent, confirmed OR ended_ms IS NOT NULL, ended_ms IS NOT NULL,"
        " adopted_ended, started_ms FROM session WHERE account=:account AND id=:id",
        {"account": key[0], "id": key[1]},
    ).fetchone()
    return _Rival(*row) if row else None


def _supersede(
    db: Database, by: Reporter, key: tuple[str, str], *, gone: Superseded, kept: Superseded
) -> None:
    note_unanswered(db, gone.agent, gone.internal_id, by.now_ms)
    data = {"stopped": asdict(gone), "kept": asdict(kept)}
    record(db, "session.duplicate", Actor(by.agent), key, by.now_ms, **data)


def _take_row(db: Database, by: Reporter, session: HostSession) -> None:
    """Have the row of a caller's id be this session's; who plays there, and a stop, stay."""
    identity = session.identity
    db.execute(
        "UPDATE session SET internal_id=:internal_id, agent=:agent, application=:application,"
        " tag=:tag, location=:location, labels=:labels, external_id=:external_id,"
        " nano_cpus=:nano_cpus, memory_bytes=:memory_bytes, created_ms=:created, ended_ms=NULL,"
        " adopted_ended=:ended WHERE account=:account AND id=:id",
        {
            "account": identity.account,
            "id": identity.session_id,
            "internal_id": session.internal_id,
            "agent": by.agent,
            "application": identity.application,
            "tag": identity.tag,
            "location": identity.location,
            "labels": json.dumps(dict(identity.labels)),
            "external_id": identity.external_id,
            "nano_cpus": session.reservation.nano_cpus,
            "memory_bytes": session.reservation.memory_bytes,
            "created": min(session.create_ms, by.now_ms),
            "ended": session.state.ended,
        },
    )
    replace_labels(db, identity.account, identity.session_id, identity.labels)


def _write(db: Database, by: Reporter, session: HostSession, told: list[object]) -> None:
    """Write what a host tells of a live row's session, of which the row has `told` so far.

    What is there already is left alone: most of what a host tells after a restart is.
    """
    ended, now_ms = session.state.ended, by.now_ms
    reported = {
        "confirmed": True,
        "state": session.state,
        "host": session.host,
        "ports": ports_json(session.ports),
        # In one order: protobuf reads a map in another one in every process.
        "injected_env": json.dumps(dict(session.injected_env), sort_keys=True),
        "started_ms": session.create_ms,
        "end_reason": session.end_reason,
        "exit_code": session.exit_code,
        "detail": session.detail,
    }
    if [*reported.values()] == told and not ended:
        return
    # A host's wrong clock must neither keep a row for ever nor have it forgotten at once.
    end_ms = min(session.end_ms or now_ms, now_ms) if ended else None
    row = db.execute(
        "UPDATE session SET confirmed=:confirmed, state=:state, host=:host, ports=:ports,"
        " injected_env=:injected_env, started_ms=:started_ms, end_reason=:end_reason,"
        " exit_code=:exit_code, detail=:detail, ended_ms=max(created_ms, :end),"
        " claim=CASE WHEN :ended THEN NULL ELSE claim END"
        " WHERE internal_id=:internal_id RETURNING account, id",
        {**reported, "end": end_ms, "ended": ended, "internal_id": session.internal_id},
    ).fetchone()
    if ended:
        remove_labels(db, *row)
        record(db, "session.ended", Actor(by.agent), row, now_ms, reason=session.end_reason)
