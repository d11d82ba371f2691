"""The command line."""

import asyncio
import logging
import signal
import sys
from pathlib import Path

import click

from controlplane.accounts import InitialTokens, first_tokens
from controlplane.app import DEFAULT_ACCOUNT, ControlPlane
from controlplane.config import Config, load_config
from controlplane.errors import ConfigError, StoreError

_log = logging.getLogger(__name__)

_CONFIG = click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The settings file (TOML).",
)


@click.group()
def main() -> None:
    """Tiltyard's control plane: the HTTP API, tokens, applications and placement."""


@main.command()
@_CONFIG
def serve(path: Path) -> None:
    """Serve the HTTP API until SIGTERM or SIGINT."""
    config = _load(path)
    logging.basicConfig(
        level=config.log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    try:
        _first_start(config)
        asyncio.run(_serve(config))
    except* (StoreError, OSError) as group:
        raise click.ClickException(str(group.exceptions[0])) from group


@main.command()
@_CONFIG
@click.option("--account", "accounts", multiple=True, help="An account to make; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print for machines.")
def init(path: Path, accounts: tuple[str, ...], *, as_json: bool) -> None:
    """Make the database, accounts and first tokens, and print each token once.

    Run again it adds the accounts that are missing and prints only their tokens.
    """
    config = _load(path)
    try:
        control_plane = ControlPlane(config)
        tokens = asyncio.run(control_plane.initialise(accounts or (DEFAULT_ACCOUNT,)))
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    click.echo(tokens.to_json() if as_json else _for_people(tokens))


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


def _for_people(tokens: InitialTokens) -> str:
    lines = [f"account {name}: {token}" for name, token in tokens.accounts.items()]
    if tokens.operator_token is not None:
        lines.append(f"operator: {tokens.operator_token}")
    return "\n".join(lines or ["nothing to make: everything is there"])
