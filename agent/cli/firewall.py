"""`tiltyard-agent firewall`: rules that protect the host from sessions, applied as root."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import click

from agent.cli.options import CONFIG, fail
from agent.network.firewall import Firewall, FirewallError
from agent.network.sources.nat_table import NatTable


@click.group()
def firewall() -> None:
    """Protect this host's services and the cloud's metadata service from sessions."""


@firewall.command()
@CONFIG
def apply(path: Path | None) -> None:
    """Add the rules; do nothing if they are in place."""
    with _firewall(path) as host:
        click.echo("rules added" if host.apply() else "the rules are in place")


@firewall.command()
@CONFIG
def check(path: Path | None) -> None:
    """Report missing rules; exit code 1 if there are any."""
    with _firewall(path) as host:
        problems = host.problems()
    if problems:
        fail(f"run `tiltyard-agent firewall apply`: {'; '.join(problems)}")
    click.echo("the rules are in place")


@firewall.command()
@CONFIG
def remove(path: Path | None) -> None:
    """Remove Tiltyard's rules and no others."""
    with _firewall(path) as host:
        click.echo("rules removed" if host.remove() else "there are no rules")
    for version in (4, 6):
        table = NatTable(version)
        with contextlib.suppress(OSError):  # the kernel has no nftables, or no IPv6
            table.remove()
        table.close()


@contextlib.contextmanager
def _firewall(path: Path | None) -> Iterator[Firewall]:
    """Return the configured firewall; an error ends the command with one line."""
    from agent.cli.settings import read_config

    try:
        yield Firewall(read_config(path).firewall())
    except FirewallError as error:
        fail(str(error))
