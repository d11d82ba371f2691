"""Operator commands for the authority. Each calls the API."""

from typing import Any

import click

from controlplane.cli.columns import Column, Row, field, sheet, table, time
from controlplane.cli.options import YES, Api, calls, confirmed

SHORT = 16
"""Characters of a fingerprint that distinguish it."""

_WAITING: dict[str, Column] = {
    "AGENT": field("agent"),
    "AUTHORITY": field("authority", lambda text: text[:SHORT]),
    "WHY": field("why"),
}


@click.group()
def authority() -> None:
    """The authority that signs certificates of hosts and the control plane."""


@authority.command()
@calls("show the authority")
def status(api: Api) -> None:
    """Show the authority, and hosts that have not moved to it."""
    api.print(api.get("operator", "authority"), _lines)


@authority.command()
@click.option("--compromised", is_flag=True, help="Stop trusting the current one at once.")
@YES
@calls("rotate the authority")
def rotate(api: Api, *, compromised: bool, yes: bool) -> None:
    """Replace the authority by a new one; hosts move to it automatically.

    With --compromised nothing is moved: every host must enrol again.
    """
    if compromised:
        confirmed("Hang up on every host, until it has enrolled again?", yes=yes)
    body = {"compromised": compromised}
    api.print(api.post("operator", "authority", "rotate", body=body), _lines)


@authority.command()
@click.option("--force", is_flag=True, help="Even if hosts have not moved: they must enrol again.")
@YES
@calls("finish the rotation")
def finish(api: Api, *, force: bool, yes: bool) -> None:
    """Stop trusting the former authority, once all hosts have moved."""
    if force:
        confirmed("Hang up on the hosts that have not moved, for good?", yes=yes)
    api.print(api.post("operator", "authority", "finish", body={"force": force}), _lines)


def _lines(shown: Row) -> list[str]:
    columns: dict[str, Column] = {"CURRENT": lambda row: _of(row["current"])}
    if shown["former"] is not None:
        columns["FORMER"] = lambda row: _of(row["former"])
    columns["HOSTS"] = lambda row: f"{row['moved']} of {row['enrolled']} are with the current one"
    waiting = table(_WAITING, shown["waiting"]) if shown["waiting"] else []
    return [*sheet(columns, shown), *waiting]


def _of(shown: Any) -> str:
    return f"{shown['fingerprint'][:SHORT]}, until {time(shown['expires'])}"


COMMANDS = (authority,)
