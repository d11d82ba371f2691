"""The decision on a session that a host reports: keep, stop, claim or adopt it.

An agent is trusted only for what was placed on it:

- the attempt that a row names on this agent is written, and stopped if its row has ended or has
  the stop mark;
- the claim of a standby that a row names is repeated, and so is the lost part of a session that
  used a prepared container, which its host reports as a standby in doubt; other standbys are left
  alone, unless they may have been claimed;
- a session or attempt of which a stop was ordered is stopped;
- a session is left alone if it had a row that is gone: if its ticket is not valid, if this
  database does not know its account, or if it was not ordered in a time that this database has
  lost;
- a session of a removed account is stopped;
- another is adopted as it was placed if its id is free, as after the database was lost.

If the id is not free, the later start wins, whichever is reported first; a stop of the other is
ordered. A start under way is waited for. An ended row never comes back.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from controlplane.domain.hosts.contract import HostSession
from tiltyard.contract import State
from tiltyard.records import record


class Verdict(Enum):
    """What to do with a reported session."""

    KEEP = auto()
    STOP = auto()
    STOP_REQUESTED = auto()  # Stop it as a caller requested
    WAIT = auto()  # Evaluate it later: another start of its id is under way
    CLAIM = auto()  # Repeat the claim that the database holds for this standby
    UNCLAIMED = auto()  # It belongs to no row: show it to operators only


Verdicts = Mapping[str, Verdict]
"""The result of a report, by internal id."""


class RowChange(Enum):
    """What to write to the row of a reported session."""

    NONE = auto()
    REPORT = auto()  # Write the report
    LAST_REPORT = auto()  # Write the report, and end the session: its agent was revoked
    END = auto()  # End the row: the host has ended the standby without the row's claim
    ADOPT = auto()  # Point the row of the id to this session, a new one if there is none


@dataclass(frozen=True, slots=True)
class PlacedSession:
    """One attempt's session on the host of an agent; empty texts before the first attempt."""

    agent: str
    internal_id: str


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Two sessions with one id, of which one is to be stopped."""

    stopped: PlacedSession
    kept: PlacedSession


@record(frozen=True, slots=True)
class Decision:
    """A verdict on a reported session, and what to write."""

    verdict: Verdict
    change: RowChange = RowChange.NONE
    duplicate: Duplicate | None = None


@record(frozen=True, slots=True)
class NamingRow:
    """The row that names a reported session by its internal id.

    `is_revoked`: the row's agent was revoked.
    """

    agent: str
    has_ended: bool = False
    is_stop_requested: bool = False
    is_revoked: bool = False


@dataclass(frozen=True, slots=True)
class Rival:
    """The row that has the id of a reported session, but names another session or none yet.

    `was_adopted_ended`: the row was adopted when its session had ended already.
    """

    session: PlacedSession
    started_ms: int = 0
    is_confirmed: bool = True
    has_ended: bool = False
    was_adopted_ended: bool = False
    is_stop_requested: bool = False


@dataclass(frozen=True, slots=True)
class ReportedAccount:
    """The account of a reported session."""

    created_ms: int
    is_removed: bool = False


@dataclass(frozen=True, slots=True)
class MissingRow:
    """The facts on a reported session that no row names.

    `is_in_service`: its agent was neither removed nor revoked. `was_lost`: its ticket is valid,
    and was issued in a time that this database has lost. `is_past_retention`: its row would have
    been removed by now. Times are whole milliseconds, as in rows: the same start is the later one,
    whichever is reported first.
    """

    created_ms: int
    account: ReportedAccount | None
    rival: Rival | None = None
    is_in_service: bool = True
    has_stop_order: bool = False
    was_lost: bool = True
    is_past_retention: bool = False


def decide(session: HostSession, agent: str, facts: NamingRow | MissingRow) -> Decision:
    """Decide on a session that an agent reports."""
    if isinstance(facts, NamingRow):
        return _decide_named(session, agent, facts)
    return _decide_unnamed(session, agent, facts)


def _decide_named(session: HostSession, agent: str, row: NamingRow) -> Decision:
    if row.agent != agent:
        return _left_alone(session)
    if row.has_ended:
        return _stopped(session)
    if row.is_revoked:
        return Decision(Verdict.STOP, RowChange.LAST_REPORT)
    change = RowChange.REPORT
    verdict = Verdict.KEEP
    # The host may report it as a standby, still or again.
    if session.is_standby:
        change = RowChange.END if session.state.ended else RowChange.NONE
        verdict = Verdict.CLAIM
    if session.state.ended:
        verdict = Verdict.KEEP
    elif row.is_stop_requested:
        verdict = Verdict.STOP_REQUESTED
    return Decision(verdict, change)


def _decide_unnamed(session: HostSession, agent: str, facts: MissingRow) -> Decision:
    if session.state is State.CREATED or not facts.is_in_service:
        return Decision(Verdict.KEEP)  # it may still be undone; or the agent is gone
    if session.in_doubt or facts.has_stop_order:
        return _stopped(session)
    if facts.account is None or not facts.was_lost:
        return _left_alone(session)
    if facts.account.is_removed:
        return _stopped(session)
    # An older session belonged to a removed account of that name.
    is_older = facts.created_ms < facts.account.created_ms
    if session.state.ended and (facts.is_past_retention or is_older):
        return Decision(Verdict.KEEP)
    return _decide_lost(session, agent, facts)


def _decide_lost(session: HostSession, agent: str, facts: MissingRow) -> Decision:
    rival = facts.rival
    if rival is None:
        return Decision(Verdict.KEEP, RowChange.ADOPT)
    if session.state.ended:
        return Decision(Verdict.KEEP)
    if not (rival.is_confirmed or rival.has_ended):
        return Decision(Verdict.WAIT)
    reported = PlacedSession(agent, session.internal_id)
    is_earlier = (rival.started_ms, rival.session.internal_id) < (
        facts.created_ms,
        session.internal_id,
    )
    may_give_way = not rival.has_ended or rival.was_adopted_ended
    if not (is_earlier and may_give_way):
        return Decision(Verdict.STOP, duplicate=Duplicate(stopped=reported, kept=rival.session))
    duplicate = None
    if not rival.has_ended:
        duplicate = Duplicate(stopped=rival.session, kept=reported)
    # The stop mark stays with the id.
    verdict = Verdict.STOP_REQUESTED if rival.is_stop_requested else Verdict.KEEP
    return Decision(verdict, RowChange.ADOPT, duplicate)


def _left_alone(session: HostSession) -> Decision:
    is_listed = not (session.state.ended or session.is_standby)
    return Decision(Verdict.UNCLAIMED if is_listed else Verdict.KEEP)


def _stopped(session: HostSession) -> Decision:
    return Decision(Verdict.KEEP if session.state.ended else Verdict.STOP)
