"""The command line."""

import asyncio
import logging
import signal
import sys
import time
from pathlib import Path

import click

from controlplane import fleet_cli, operator_cli
from controlplane.accounts import InitialTokens, first_tokens
from controlplane.app import DEFAULT_ACCOUNT, ControlPlane
from controlplane.config import Config, load_config
from controlplane.errors import ConfigError, StoreError
from controlplane.names import ACCOUNT_NAME_RULE, is_account_name
from controlplane.redaction import RedactingFormatter

_log = logging.getLogger(__name__)
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
        if not is_account_name(name):
            raise click.BadParameter(f"{name!r} {ACCOUNT_NAME_RULE}")
    return names


@click.group()
def main() -> None:
    """Tiltyard's control plane: the HTTP API, tokens, applications and placement."""


@main.command()
@_CONFIG
def serve(path: Path) -> None:
    """Serve the HTTP API until SIGTERM or SIGINT."""
    config = _load(path)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(RedactingFormatter(_LOG_FORMAT))
    logging.basicConfig(level=config.log_level.upper(), handlers=[handler])
    try:
        _first_start(config)
        asyncio.run(_serve(config))
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
    config = _load(path)
    names = accounts or (() if new_operator_token else (DEFAULT_ACCOUNT,))
    try:
        initialise = ControlPlane(config).initialise(names, new_operator_token=new_operator_token)
        tokens = asyncio.run(initialise)
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    _print(config, tokens, tokens.to_json() if as_json else _for_people(tokens))


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


async def _serve(config: Config) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await ControlPlane(config).serve(stopping)


def _first_start(config: Config) -> None:
    """Make what `init` makes, and leave the tokens where only the owner can read them.

    They are in a draft before the database has them. A draft that is still there is of a first
    start that broke off: it is taken up again with the same tokens.
    """
    path = config.state_dir / "initial-tokens.json"
    draft = path.with_suffix(".draft")
    if config.database.exists() and not draft.exists():
        return
    try:
        tokens = InitialTokens.load(draft)
        if tokens is None:
            tokens = first_tokens(DEFAULT_ACCOUNT)
            tokens.save(draft)
    except OSError as error:
        raise StoreError(f"cannot open {draft}: because {error}") from error
    if asyncio.run(ControlPlane(config).initialise_with(tokens)):
        draft.replace(path)
        _log.info("made the database; the first tokens are in %s", path)
    else:
        draft.unlink()


def _load(path: Path) -> Config:
    try:
        return load_config(path)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error


def _echo(text: str) -> None:
    """Print; unlike click, fail when the standard output was closed from the beginning."""
    if getattr(sys, "stdout", None) is None:
        raise OSError("the standard output is closed")
    click.echo(text)


def _print(config: Config, tokens: InitialTokens, text: str) -> None:
    """Print tokens that the database has; keep them for the owner when that fails."""
    try:
        _echo(text)
    except OSError as error:
        kept = config.state_dir / f"unprinted-tokens-{time.time_ns()}.json"
        tokens.save(kept)
        raise click.ClickException(f"cannot print: because {error}; see {kept}") from error


def _for_people(tokens: InitialTokens) -> str:
    lines = [f"account {name}: {token}" for name, token in tokens.accounts.items()]
    if tokens.operator_token is not None:
        lines.append(f"operator: {tokens.operator_token}")
    return "\n".join(lines or ["nothing to make: everything is there"])
