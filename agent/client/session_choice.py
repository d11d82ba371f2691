"""Which session an operator means by what was typed. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

Message = Mapping[str, Any]

_SHOWN = 5
"""Sessions that are named when several fit."""
_ENDED = frozenset({"STATE_EXITED", "STATE_DEAD"})


class NotChosenError(Exception):
    """No session fits, or more than one; the text is for people."""


def choose(sessions: Iterable[Message], given: str) -> Message:
    """The session with this internal id, or the one with this caller's id or begin of an id.

    Callers choose ids freely, even the internal id of another session: a complete internal id
    always selects that session, and an ambiguous id selects none. Among sessions of one caller
    with one id the live one is selected, or else the newest. `sessions` are messages of
    agent.proto, sorted by creation.
    """
    found = []
    for session in sessions:
        if session["internal_id"] == given:
            return session
        named = session["identity"]["session_id"] == given
        if named or (given and session["internal_id"].startswith(given)):
            found.append(session)
    if len({_caller(session) for session in found}) == 1:
        live = [session for session in found if is_live(session)]
        found = live or found[-1:]
    if not found:
        raise NotChosenError(f"there is no session {given!r} on this host")
    if len(found) > 1:
        shown = ", ".join(map(_named, found[:_SHOWN]))
        rest = f", and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise NotChosenError(f"{given!r} may be any of: {shown}{rest}")
    return found[0]


def is_live(session: Message) -> bool:
    """Return whether a session has not ended."""
    return session["state"] not in _ENDED


def is_standby(session: Message) -> bool:
    """Return whether it is an unclaimed standby, or in doubt."""
    return bool(session["warm_pool"]) and not session["in_doubt"]


def _caller(session: Message) -> tuple[str, str]:
    return session["identity"]["account"], session["identity"]["session_id"]


def _named(session: Message) -> str:
    account, session_id = _caller(session)
    return f"{session['internal_id']} ({account!r}, {session_id!r})"
