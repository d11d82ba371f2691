"""Drain a host locally."""

import json
import re
from pathlib import Path

import click

from agent.cli import views
from agent.cli.options import AS_JSON, SOCKET, asked
from agent.client.agent_client import is_standby
from agent.domain.sessions.session import LONGEST_TTL_SECONDS

_SPAN = re.compile(r"(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?\Z", re.ASCII)


def _seconds(_: object, __: object, text: str | None) -> int | None:
    if text is None:
        return None
    found = _SPAN.match(text)
    if not text or found is None:
        raise click.BadParameter(f"{text!r} is not of the form 1h30m")
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
    with asked(socket) as agent:
        answer = agent.set_drain(draining=True, remaining=deadline)
        # Standbys are stopped at once.
        live = [each for each in agent.sessions(live_only=True) if not is_standby(each)]
        if as_json:
            click.echo(json.dumps({**answer, "live_sessions": live}))
            return
        if not live:
            click.echo("The host is empty.")
            return
        end = views.moment(answer, "empty_time")
        click.echo(
            f"The host is empty by {end} at the latest."
            if end
            else "Sessions without a lifetime remain until they end by themselves."
        )
        for line in views.session_lines(live):
            click.echo(line)


@click.command()
@SOCKET
@AS_JSON
def undrain(socket: Path, *, as_json: bool) -> None:
    """Accept new sessions again."""
    with asked(socket) as agent:
        answer = agent.set_drain(draining=False)
        if as_json:
            click.echo(json.dumps(answer))
