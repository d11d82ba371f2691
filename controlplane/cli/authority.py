"""Operator commands for the certificate authority."""

import click

from controlplane.cli.api import Api
from controlplane.cli.columns import Column, Row, sheet, table, time
from controlplane.cli.console import confirmed
from controlplane.cli.options import YES, calls

_SHORT = 16  # Displayed characters of a fingerprint

_WAITING: tuple[Column, ...] = ("agent", ("AUTHORITY", lambda row: short(row["authority"])), "why")


@click.group()
def authority() -> None:
    """The authority that signs certificates of hosts and the control plane."""


@authority.command()
@calls("show the authority")
def status(api: Api) -> None:
    """Show the authority, and hosts that have not moved to it."""
    api.print(api.call("GET", "operator", "authority"), _lines)


@authority.command()
@click.option("--compromised", is_flag=True, help="Stop trusting the current one at once.")
@YES
@calls("rotate the authority")
def rotate(api: Api, *, compromised: bool, yes: bool) -> None:
    """Replace the authority by a new one; hosts move to it automatically.

    With --compromised nothing is moved: every host must enrol again.
    """
    confirmed("Disconnect every host until it has enrolled again?", yes=yes or not compromised)
    body = {"compromised": compromised}
    api.print(api.call("POST", "operator", "authority", "rotate", body=body), _lines)


@authority.command()
@click.option("--force", is_flag=True, help="Even if hosts have not moved: they must enrol again.")
@YES
@calls("finish the rotation")
def finish(api: Api, *, force: bool, yes: bool) -> None:
    """Stop trusting the former authority, once all hosts have moved."""
    confirmed("Disconnect hosts that have not moved until they enrol again?", yes=not force or yes)
    body = {"force": force}
    api.print(api.call("POST", "operator", "authority", "finish", body=body), _lines)


def short(fingerprint: str | None) -> str:
    """Abbreviate a fingerprint."""
    return (fingerprint or "")[:_SHORT]


def _lines(shown: Row) -> list[str]:
    columns: list[Column] = [
        (key.upper(), lambda row, key=key: _describe(row[key]))  # type: ignore[misc]
        for key in ("current", "former")
        if shown[key] is not None
    ]
    moved = f"{shown['moved']} of {shown['enrolled']} are with the current one"
    waiting = table(_WAITING, shown["waiting"]) if shown["waiting"] else []
    return [*sheet([*columns, ("HOSTS", lambda _: moved)], shown), *waiting]


def _describe(shown: Row) -> str:
    return f"{short(shown['fingerprint'])}, until {time(shown['expires'])}"


COMMANDS = (authority,)
