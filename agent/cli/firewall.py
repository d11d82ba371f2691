"""`tiltyard-agent firewall`: what keeps sessions from their host, put in by root."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import click

from agent.cli.options import fail
from agent.cli.settings_options import CONFIG, read_config
from agent.network.firewall import Firewall, FirewallError


@click.group()
def firewall() -> None:
    """Keep sessions from this host's services and its cloud's metadata."""


@firewall.command()
@CONFIG
def apply(path: Path | None) -> None:
    """Put the rules in; nothing happens when they are there."""
    with _firewall(path) as host:
        click.echo("the rules are in" if host.apply() else "the rules were in")


@firewall.command()
@CONFIG
def check(path: Path | None) -> None:
    """Say which rules are missing; exit code 1 when there are any."""
    with _firewall(path) as host:
        problems = host.problems()
    if problems:
        fail(f"run `tiltyard-agent firewall apply`: {'; '.join(problems)}")
    click.echo("the rules are in")


@firewall.command()
@CONFIG
def remove(path: Path | None) -> None:
    """Take the rules out, and leave everybody else's."""
    with _firewall(path) as host:
        click.echo("the rules are out" if host.remove() else "there were no rules")


@contextlib.contextmanager
def _firewall(path: Path | None) -> Iterator[Firewall]:
    """The firewall that the settings ask for; what goes wrong ends the command with one line."""
    try:
        yield Firewall(read_config(path).firewall())
    except FirewallError as error:
        fail(str(error))
