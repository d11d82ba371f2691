"""The command line."""

import gc
import signal
from pathlib import Path
from typing import Any

import click

from controlplane.cli import authority as authority_cli
from controlplane.cli import console
from controlplane.cli import fleet as fleet_cli
from controlplane.cli import operators as operator_cli
from controlplane.domain.errors import NewerStoreError, StoreError
from controlplane.domain.names import NAME_RULE, is_name
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.logging.output import written
from tiltyard.runtime.systemd import read_supervision

log = get_logger(__name__)

_CONFIG = click.option(
    "--config",
    "path",
    default="/etc/tiltyard/controlplane.toml",
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The settings file (TOML).",
)


def _account_names(_: object, __: object, names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not is_name(name):
            raise click.BadParameter(f"{name!r} {NAME_RULE}")
    return names


def _settings(path: Path) -> Any:
    # pydantic is slow to import, and help does not need it.
    from controlplane.settings.model import load_config  # noqa: PLC0415
    from tiltyard.runtime.settings import SettingsError, refuse  # noqa: PLC0415

    try:
        return load_config(path)
    except SettingsError as error:
        refuse(error)


@click.group()
@click.version_option(package_name="tiltyard")
def main() -> None:
    """Tiltyard's control plane: the HTTP API, tokens, applications and placement."""


@main.command()
@_CONFIG
def serve(path: Path) -> None:
    """Serve the HTTP API until SIGTERM or SIGINT. SIGHUP is ignored."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    gc.disable()  # imports make no garbage
    from controlplane.cli import server  # noqa: PLC0415  # slow to import
    from tiltyard.runtime.settings import EXIT_CONFIG  # noqa: PLC0415

    gc.enable()
    config = _settings(path)
    stream = read_supervision().journal_stream
    form = config.log_format
    with written(config.log_level, form, journal_stream=stream, limited=server.LIMITED):
        try:
            server.serve(config)
        except Exception as error:
            if (cause := _cause(error)) is not None:
                console.remark(f"Error: {cause}")
                raise SystemExit(
                    EXIT_CONFIG if isinstance(cause, NewerStoreError) else 1
                ) from error
            log.critical("unhandled exception", exc_info=error)
            raise SystemExit(1) from error


def _cause(error: Exception) -> Exception | None:
    """Return an error that the operator can fix; None if any of a group's errors is a bug."""
    if isinstance(error, ExceptionGroup):
        causes = [_cause(each) for each in error.exceptions]
        return None if None in causes else causes[0]
    return error if isinstance(error, StoreError | OSError) else None


@main.command()
@_CONFIG
@click.option(
    "--account",
    "accounts",
    multiple=True,
    callback=_account_names,
    help="An account to create; repeatable.",
)
@click.option(
    "--new-operator-token",
    is_flag=True,
    help="Print another operator token; without --account create no account.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def init(
    path: Path, accounts: tuple[str, ...], *, new_operator_token: bool, as_json: bool
) -> None:
    """Create the database, accounts and first tokens, and print each token once.

    Run again it adds the accounts that are missing and prints only their tokens.
    """
    from controlplane.cli import server  # noqa: PLC0415  # slow to import

    config = _settings(path)
    try:
        tokens = server.initialise(config, accounts, new_operator_token=new_operator_token)
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    try:
        console.echo(tokens.to_json() if as_json else server.for_people(tokens))
    except OSError as error:
        text = f"cannot print the tokens: {error}; create others with --new-operator-token"
        raise click.ClickException(text) from error


@main.command()
@_CONFIG
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def backup(path: Path, target: Path, *, force: bool) -> None:
    """Write the database and the keys to FILE, a tar archive, also while the control plane runs.

    The file has mode 0600; it gives access to every host. With - it goes to standard output, for a
    program that encrypts it.
    """
    from controlplane.cli import backups  # noqa: PLC0415  # as for `serve`

    backups.write_backup_of(_settings(path), target, force=force)


@main.command()
@_CONFIG
@click.argument("source", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--force", is_flag=True, help="Replace an existing database, which is kept.")
def restore(path: Path, source: Path, *, force: bool) -> None:
    """Restore the backup in FILE, or on standard input with -, while the control plane is stopped.

    The backup is checked before anything is changed, and the files that it replaces are kept.
    """
    from controlplane.cli import backups  # noqa: PLC0415  # as for `serve`

    backups.restore_from(_settings(path), source, force=force)


for command in (*operator_cli.COMMANDS, *fleet_cli.COMMANDS, *authority_cli.COMMANDS):
    main.add_command(command)


@main.group("config")
def config_group() -> None:
    """Work with the settings file."""


@config_group.command("check")
@_CONFIG
def check_config(path: Path) -> None:
    """Report all mistakes in the settings, or show the settings."""
    from tiltyard.runtime.settings import show  # noqa: PLC0415  # as in `_settings`

    show(_settings(path))
