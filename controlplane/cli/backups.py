"""Backups made and put back, on the machine of the control plane."""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import click

from controlplane.backups.backup import back_up, back_up_into
from controlplane.backups.backup_file import Manifest
from controlplane.backups.restore import restore
from controlplane.cli.console import echo, remark
from controlplane.domain.errors import StoreError
from controlplane.settings.model import Config

STREAM = Path("-")

AFTERWARDS = """\
What was done since {time} is not in it. Before you start the control plane:
- is the one that it replaces down? Two of them would end each other's sessions
- make accounts again that were made since, with `init --account NAME`: until then
  nobody can see their sessions, which run on
And then: revoke again agents and tokens that were revoked since, remove again accounts
and agents that were removed, and enrol again hosts that were enrolled. Sessions need nothing."""


def write_backup_of(config: Config, target: Path, *, force: bool) -> None:
    """Make a backup, and say so on standard error.

    Raises:
        click.ClickException: It could not be made.
    """
    now = datetime.now(UTC)
    try:
        if target == STREAM:
            with _output() as stream:
                manifest = back_up_into(config, stream, now)
        else:
            manifest = back_up(config, target, now, replace=force)
    except (StoreError, OSError) as error:
        raise click.ClickException(str(error)) from error
    size = sum(part.size for part in manifest.parts) / 2**20
    remark(f"backed up {config.database}: {size:.1f} MiB, schema {manifest.schema_number}")


def restore_from(config: Config, source: Path, *, force: bool) -> None:
    """Put a backup in place, and say what is left to do.

    Raises:
        click.ClickException: It could not be; nothing was changed.
    """
    try:
        with _input() if source == STREAM else source.open("rb") as file:
            restored = restore(config, file, datetime.now(UTC), replace=force)
    except (StoreError, OSError) as error:
        raise click.ClickException(str(error)) from error
    manifest: Manifest = restored.manifest
    told = f"restored the backup of {manifest.time}, made by version {manifest.version}"
    if restored.replaced is not None:
        told += f"\nwhat was there before is in {restored.replaced}"
    try:
        echo(f"{told}\n{AFTERWARDS.format(time=manifest.time)}")
    except OSError as error:  # it was done all the same
        remark(f"{told}; cannot print the rest: because {error}")


def _output() -> BinaryIO:
    if getattr(sys, "stdout", None) is None or sys.stdout.isatty():
        raise click.UsageError("a backup holds keys and is not text: send it into a pipe or file")
    return os.fdopen(os.dup(sys.stdout.fileno()), "wb")


def _input() -> BinaryIO:
    if getattr(sys, "stdin", None) is None or sys.stdin.isatty():
        raise click.UsageError("there is no backup on standard input")
    return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
