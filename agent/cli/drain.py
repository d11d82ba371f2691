"""Drain a host locally."""

import json
import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from agent.cli.options import AS_JSON, SOCKET, asked
from agent.client.session_choice import is_standby
from agent.domain.session import LONGEST_TTL_SECONDS
from tiltyard.runtime.tables import span, table

_SPAN = re.compile(r"(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?\Z", re.ASCII)


def _seconds(_: object, __: object, text: str | None) -> int | None:
    if text is None:
        return None
    found = _SPAN.match(text)
    if not text or found is None:
        raise click.BadParameter(f"{text!r} has not the form 1h30m")
    seconds = int(found[1] or 0) * 3600 + int(found[2] or 0) * 60
    if seconds > LONGEST_TTL_SECONDS:
        raise click.BadParameter(f"{text!r} is longer than 8760 hours")
    return seconds


@click.command()
@SOCKET
@click.option(
    "--deadline",
    callback=_seconds,
    metavar="1h30m",
    help="Stop remaining sessions after this time; by default they end by themselves.",
)
@AS_JSON
def drain(socket: Path, *, deadline: int | None, as_json: bool) -> None:
    """Accept no new sessions, notify the games, and list remaining sessions."""
    now = time.time()
    with asked(socket) as agent:
        answer = agent.drain(remaining=deadline)
        # Standbys are given back at once.
        live = [each for each in agent.sessions(live_only=True) if not is_standby(each)]
        if as_json:
            click.echo(json.dumps({**answer, "live_sessions": live}))
            return
        for line in _said(answer.get("empty_time"), live, deadline, now):
            click.echo(line)


@click.command()
@SOCKET
@AS_JSON
def undrain(socket: Path, *, as_json: bool) -> None:
    """Accept new sessions again."""
    with asked(socket) as agent:
        answer = agent.undrain()
        if as_json:
            click.echo(json.dumps(answer))


def _said(
    empty: str | None, live: list[dict[str, Any]], deadline: int | None, now: float
) -> list[str]:
    if not live:
        return ["The host is empty."]
    if empty is None:
        first = "Nothing says when the host is empty: sessions without a lifetime hold it up."
    else:
        rest = _from(now, empty)
        rest = rest if deadline is None else min(rest, deadline)
        first = f"The host is empty in {span(rest)} at the latest."
    ends = sorted(
        ((_rest(session, deadline, now), session) for session in live),
        key=lambda end: (end[0] is not None, -(end[0] or 0)),
    )
    rows = [
        (
            "never" if rest is None else span(rest),
            session["internal_id"],
            session["identity"]["application"],
            session["identity"]["session_id"],
        )
        for rest, session in ends
    ]
    return [first, *table(("ENDS IN", "INTERNAL ID", "APPLICATION", "SESSION"), rows)]


def _rest(session: dict[str, Any], deadline: int | None, now: float) -> float | None:
    """The most seconds that a session has left; None without a deadline."""
    expire = session.get("expire_time")
    rests = [] if deadline is None else [float(deadline)]
    if expire is not None:
        rests.append(_from(now, expire))
    return min(rests, default=None)


def _from(now: float, moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp() - now
