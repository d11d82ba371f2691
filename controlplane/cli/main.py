"""The command line."""

import logging
import sys
from pathlib import Path

import click

from controlplane.cli import fleet as fleet_cli
from controlplane.cli import operators as operator_cli
from controlplane.config import Config, load_config
from controlplane.errors import ConfigError, StoreError
from controlplane.names import NAME_RULE, is_name
from controlplane.redaction import RedactingFormatter

_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"

_CONFIG = click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The settings file (TOML).",
)


def _account_names(_: object, __: object, names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not is_name(name):
            raise click.BadParameter(f"{name!r} {NAME_RULE}")
    return names


@click.group()
def main() -> None:
    """Tiltyard's control plane: the HTTP API, tokens, applications and placement."""


@main.command()
@_CONFIG
def serve(path: Path) -> None:
    """Serve the HTTP API until SIGTERM or SIGINT."""
    from controlplane.cli import server  # noqa: PLC0415  # it says why

    config = _load(path)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(RedactingFormatter(_LOG_FORMAT))
    logging.basicConfig(level=config.log_level.upper(), handlers=[handler])
    try:
        server.serve(config)
    except* (StoreError, OSError) as group:
        raise click.ClickException(str(group.exceptions[0])) from group


@main.command()
@_CONFIG
@click.option(
    "--account",
    "accounts",
    multiple=True,
    callback=_account_names,
    help="An account to make; repeatable.",
)
@click.option(
    "--new-operator-token",
    is_flag=True,
    help="Print one more operator's token; without --account make no account.",
)
@click.option("--json", "as_json", is_flag=True, help="Print for machines.")
def init(
    path: Path, accounts: tuple[str, ...], *, new_operator_token: bool, as_json: bool
) -> None:
    """Make the database, accounts and first tokens, and print each token once.

    Run again it adds the accounts that are missing and prints only their tokens.
    """
    from controlplane.cli import server  # noqa: PLC0415  # it says why

    config = _load(path)
    try:
        tokens = server.initialise(config, accounts, new_operator_token=new_operator_token)
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    server.print_tokens(config, tokens, as_json=as_json)


for command in (*operator_cli.COMMANDS, *fleet_cli.COMMANDS):
    main.add_command(command)


@main.group("config")
def config_group() -> None:
    """Work with the settings file."""


@config_group.command("check")
@_CONFIG
def check_config(path: Path) -> None:
    """Read the settings and say whether they can be used."""
    _load(path)
    click.echo("the settings can be used")


def _load(path: Path) -> Config:
    try:
        return load_config(path)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
