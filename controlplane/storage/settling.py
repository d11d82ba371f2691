"""Settling what agents report: which session is whose, which stays, which is stopped.

An agent speaks only for what was placed on it, and is believed no more than that:

- the attempt that a row names on this agent is written; when it is to end, or has, it is stopped;
- an attempt of this agent in the ledger is stopped;
- what has no valid ticket is let be: it is neither anybody's session nor ours to stop;
- another is adopted: its account has the id free, as after the database was lost.

Where the id is not free, the later start stays, whoever reports first; the other goes to the
ledger. A row whose start is still unsettled is waited for. A row that ended never comes back.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import Enum, auto

from sqlite_utils import Database

from controlplane.fleet.contract import HostSession, State
from controlplane.storage.session_ends import abandon_attempt, lose_sessions, record
from controlplane.storage.store import Actor

IsOurs = Callable[[str, HostSession], bool]
"""Tells whether an agent's session has a valid ticket."""


class Verdict(Enum):
    """What is to be done about a reported session."""

    KEEP = auto()
    STOP = auto()
    WAIT = auto()
    """To be judged again: another start of its id is not settled yet."""
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
        "SELECT session.agent, ended_ms, stop_requested_ms, revoked_ms FROM session"
        " LEFT JOIN agent ON agent.name = session.agent WHERE internal_id=?",
        (session.internal_id,),
    ).fetchone()
    if row is None:
        return _judge_unknown(db, by, session, into)
    owner, ended_ms, stop_requested_ms, revoked_ms = row
    if owner != by.agent:
        return _left_alone(session)
    if ended_ms is not None:
        return _stopped(session)
    _write(db, by, session)
    if revoked_ms is not None:  # the last words of an agent that is not asked any more
        lose_sessions(db, by.agent, by.now_ms)
        return Verdict.STOP
    return Verdict.KEEP if stop_requested_ms is None else _stopped(session)


def _judge_unknown(db: Database, by: Reporter, session: HostSession, into: Settlement) -> Verdict:
    served = db.execute(
        "SELECT 1 FROM agent WHERE name=? AND removed_ms IS NULL AND revoked_ms IS NULL",
        (by.agent,),
    )
    if session.state is State.CREATED or not served.fetchone():
        return Verdict.KEEP  # it may still be undone; or these are the agent's last words
    ledger = "SELECT 1 FROM abandoned WHERE internal_id=? AND agent=?"
    if db.execute(ledger, (session.internal_id, by.agent)).fetchone():
        return _stopped(session)
    if not by.is_ours(by.agent, session):
        return _left_alone(session)
    account = db.execute(
        "SELECT created_ms FROM account WHERE name=? AND removed_ms IS NULL",
        (session.identity.account,),
    ).fetchone()
    if account is None:
        return _stopped(session)
    if session.state.ended and not _is_remembered(by, session, account[0]):
        return Verdict.KEEP
    return _adopt(db, by, session, into)


def _left_alone(session: HostSession) -> Verdict:
    return Verdict.KEEP if session.state.ended else Verdict.UNCLAIMED


def _stopped(session: HostSession) -> Verdict:
    return Verdict.KEEP if session.state.ended else Verdict.STOP


def _is_remembered(by: Reporter, session: HostSession, account_created_ms: int) -> bool:
    """Tell whether an ended session would still be known here, and to this account.

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
        """Tell whether it was started before this one; what ended here stays ended."""
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
            " VALUES (?,?,?,'','','','{}','',0,0,0)",
            (*key, session.state),
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
        " adopted_ended, started_ms FROM session WHERE account=? AND id=?",
        key,
    ).fetchone()
    return _Rival(*row) if row else None


def _supersede(
    db: Database, by: Reporter, key: tuple[str, str], *, gone: Superseded, kept: Superseded
) -> None:
    abandon_attempt(db, gone.agent, gone.internal_id, by.now_ms)
    data = {"stopped": asdict(gone), "kept": asdict(kept)}
    record(db, "session.duplicate", Actor(by.agent), key, by.now_ms, **data)


def _take_row(db: Database, by: Reporter, session: HostSession) -> None:
    """Have the row of a caller's id be this session's; who plays there, and a stop, stay."""
    identity = session.identity
    db.execute(
        "UPDATE session SET internal_id=?, agent=?, application=?, tag=?, location=?, labels=?,"
        " external_id=?, nano_cpus=?, memory_bytes=?, created_ms=?, ended_ms=NULL,"
        " adopted_ended=? WHERE account=? AND id=?",
        (
            session.internal_id,
            by.agent,
            identity.application,
            identity.tag,
            identity.location,
            json.dumps(dict(identity.labels)),
            identity.external_id,
            session.reservation.nano_cpus,
            session.reservation.memory_bytes,
            min(session.create_ms, by.now_ms),
            session.state.ended,
            identity.account,
            identity.session_id,
        ),
    )


def _write(db: Database, by: Reporter, session: HostSession) -> None:
    ended, now_ms = session.state.ended, by.now_ms
    # A host's wrong clock must neither keep a row for ever nor have it forgotten at once.
    key = db.execute(
        "UPDATE session SET confirmed=1, state=?, host=?, ports=?, injected_env=?, started_ms=?,"
        " ended_ms=max(created_ms, ?), end_reason=?, exit_code=?, detail=? WHERE internal_id=?"
        " RETURNING account, id",
        (
            session.state,
            session.host,
            json.dumps([asdict(port) for port in session.ports]),
            json.dumps(dict(session.injected_env)),
            session.create_ms,
            min(session.end_ms or now_ms, now_ms) if ended else None,
            session.end_reason,
            session.exit_code,
            session.detail,
            session.internal_id,
        ),
    ).fetchone()
    if ended:
        record(db, "session.ended", Actor(by.agent), key, now_ms, reason=session.end_reason)
