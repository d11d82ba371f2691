"""Operators' commands on the authority. Each is a call of the API."""

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
    """The authority that hosts and the control plane know each other by."""


@authority.command()
@calls("show the authority")
def status(api: Api) -> None:
    """Show the authority, and which hosts are still to move to it."""
    api.print(api.get("operator", "authority"), _lines)


@authority.command()
@click.option("--compromised", is_flag=True, help="Trust the current one no more, at once.")
@YES
@calls("rotate the authority")
def rotate(api: Api, *, compromised: bool, yes: bool) -> None:
    """Have a new authority take the place of the current one; hosts move to it by themselves.

    With --compromised nothing is moved: every host must enrol again.
    """
    if compromised:
        confirmed("Hang up on every host, until it has enrolled again?", yes=yes)
    body = {"compromised": compromised}
    api.print(api.post("operator", "authority", "rotate", body=body), _lines)


@authority.command()
@click.option("--force", is_flag=True, help="Also when hosts have not moved: they enrol again.")
@YES
@calls("finish the rotation")
def finish(api: Api, *, force: bool, yes: bool) -> None:
    """Trust the former authority no more, once every host has moved."""
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
