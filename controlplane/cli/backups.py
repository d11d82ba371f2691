"""Making and restoring backups, on the machine of the control plane."""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import click

from controlplane.backups.backup import back_up, write_backup
from controlplane.backups.restore import restore
from controlplane.cli.console import echo, remark
from controlplane.domain.errors import StoreError
from controlplane.settings.model import Config

STREAM = Path("-")

AFTERWARDS = """\
What was done since {time} is not in it. Before you start the control plane:
- make sure that the one that it replaces is stopped: two would end each other's sessions
- create the accounts again that were created since, with `init --account NAME`: until
  then their sessions, which run on, cannot be seen
After the start: revoke again agents and tokens that were revoked since, remove again
accounts and agents that were removed, and enrol again hosts that were enrolled. Sessions
need nothing."""


def write_backup_of(config: Config, target: Path, *, force: bool) -> None:
    """Make a backup, with a message on standard error.

    Raises:
        click.ClickException: It could not be made.
    """
    now = datetime.now(UTC)
    try:
        if target == STREAM:
            with _output() as stream:
                write_backup(config, stream, now)
        else:
            back_up(config, target, now, replace=force)
    except (StoreError, OSError) as error:
        raise click.ClickException(str(error)) from error
    remark(f"backed up {config.state_dir}")


def restore_from(config: Config, source: Path, *, force: bool) -> None:
    """Restore a backup, and print what is left to do.

    Raises:
        click.ClickException: It could not be restored.
    """
    try:
        with _input() if source == STREAM else source.open("rb") as file:
            restored = restore(config, file, datetime.now(UTC), replace=force)
    except (StoreError, OSError) as error:
        raise click.ClickException(str(error)) from error
    done = f"restored the backup of {restored.taken}"
    if restored.replaced is not None:
        done += f"\nthe files that it replaced are in {restored.replaced}"
    try:
        echo(f"{done}\n{AFTERWARDS.format(time=restored.taken)}")
    except OSError as error:  # it was restored all the same
        remark(f"{done}; cannot print the rest: {error}")


def _output() -> BinaryIO:
    if getattr(sys, "stdout", None) is None or sys.stdout.isatty():
        raise click.UsageError("a backup holds keys and is not text: send it into a pipe or file")
    return os.fdopen(os.dup(sys.stdout.fileno()), "wb")


def _input() -> BinaryIO:
    if getattr(sys, "stdin", None) is None or sys.stdin.isatty():
        raise click.UsageError("there is no backup on standard input")
    return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
