"""The commands `backup` and `restore`, without the imports of a whole control plane."""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from controlplane.backups.backup import back_up, write_backup
from controlplane.backups.restore import restore
from controlplane.cli.console import remark
from controlplane.domain.errors import StoreError
from controlplane.settings.model import Config

_STREAM = Path("-")


def write_backup_of(config: Config, target: Path, *, force: bool) -> None:
    """Write a backup, and a message on standard error."""
    now = datetime.now(UTC)
    try:
        if target != _STREAM:
            back_up(config, target, now, replace=force)
        elif sys.stdout.isatty():
            raise click.UsageError("a backup contains keys and is not text: use a pipe or a file")
        else:
            with os.fdopen(os.dup(1), "wb") as stream:
                write_backup(config, stream, now)
    except (StoreError, OSError) as error:
        raise click.ClickException(str(error)) from error
    remark(f"backed up {config.state_dir}")


def restore_from(config: Config, source: Path, *, force: bool) -> None:
    """Restore a backup."""
    if source == _STREAM and sys.stdin.isatty():
        raise click.UsageError("there is no backup on standard input")
    try:
        with os.fdopen(os.dup(0), "rb") if source == _STREAM else source.open("rb") as file:
            taken, replaced = restore(config, file, datetime.now(UTC), replace=force)
    except (StoreError, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"restored the backup of {taken}")
    if replaced is not None:
        click.echo(f"replaced files are in {replaced}")
    click.echo("create newer accounts again with `init --account NAME` before the next start")
