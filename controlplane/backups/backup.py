"""Backups: all that a control plane keeps, in one file, whether it serves or not. Blocks.

The database is copied into the state directory first, where it is anyway, so that a slow target
holds up nothing; what goes wrong leaves the target as it was.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO

from controlplane.backups.backup_file import (
    AUTHORITY,
    DATABASE,
    MAX_KEY_BYTES,
    PARTS,
    REGISTRY_KEY,
    Manifest,
    Part,
    write_backup,
)
from controlplane.backups.restore import check_keys, refuse_unfinished
from controlplane.domain.errors import StoreError
from controlplane.settings.model import Config
from controlplane.state_dir.lock import using
from controlplane.state_dir.private_files import read_private, write_private, writing_private
from controlplane.storage.engine.database_copy import copy_database

_WORK = "backup.draft"
"""A folder in the state directory: what a backup is made of, empty when none is made."""


def back_up(config: Config, target: Path, now: datetime, *, replace: bool) -> Manifest:
    """Write a backup to a file, mode 0600, which is there whole or not at all.

    Raises:
        StoreError: There is such a file, and it is not to be replaced; or something that belongs
            into it is missing or damaged; or it cannot be written.
    """
    _refuse_present(target, replace=replace)
    try:
        with writing_private(target) as file:
            with _gathered(config, now) as (manifest, folder):
                write_backup(file, manifest, folder, int(now.timestamp()))
            _refuse_present(target, replace=replace)
    except OSError as error:
        raise StoreError(f"cannot write {target}: because {error.strerror}") from error
    return manifest


def back_up_into(config: Config, stream: BinaryIO, now: datetime) -> Manifest:
    """Write a backup to a stream, such as a pipe to a program that encrypts it.

    Raises:
        StoreError: As of `back_up`.
    """
    with _gathered(config, now) as (manifest, folder):
        try:
            write_backup(stream, manifest, folder, int(now.timestamp()))
            stream.flush()
        except OSError as error:
            raise StoreError(f"cannot write the backup: because {error.strerror}") from error
    return manifest


def _refuse_present(target: Path, *, replace: bool) -> None:
    if not replace and os.path.lexists(target):
        raise StoreError(f"cannot write {target}: because it is there: --force replaces it")


@contextmanager
def _gathered(config: Config, now: datetime) -> Iterator[tuple[Manifest, Path]]:
    state_dir = config.state_dir
    if not state_dir.is_dir():
        raise StoreError(f"cannot back up {state_dir}: because there is none")
    with using(state_dir), _work(state_dir) as folder:
        refuse_unfinished(state_dir)
        schema = copy_database(config.database, folder / DATABASE)
        try:
            _copy_keys(state_dir, folder)
            names = [name for name in PARTS if (folder / name).exists()]
            parts = tuple(Part.of(folder / name) for name in names)
        except OSError as error:
            raise StoreError(f"cannot back up {state_dir}: because {error}") from error
        yield (
            Manifest(
                version=version("tiltyard"),
                schema_number=schema,
                time=now.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
                environment=config.environment,
                parts=parts,
            ),
            folder,
        )


def _copy_keys(state_dir: Path, folder: Path) -> None:
    """Copy the keys after the database: a password in it was sealed with a key that was there."""
    for name in PARTS[PARTS.index(AUTHORITY) :]:
        key = read_private(state_dir / name, MAX_KEY_BYTES + 1)
        if key is not None:
            write_private(folder / name, key)
        elif name != REGISTRY_KEY:
            raise StoreError(
                f"cannot back up {state_dir}: because {name} is gone: put a copy of it back, or"
                " have `init` make another"
            )
    check_keys(folder, f"cannot back up {state_dir}")


@contextmanager
def _work(state_dir: Path) -> Iterator[Path]:
    """Have the folder to oneself, without what a backup left that broke off."""
    folder = state_dir / _WORK
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise StoreError(f"cannot open {folder}: because {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _empty(handle)
        try:
            yield folder
        finally:
            _empty(handle)
    except BlockingIOError:
        raise StoreError(f"cannot use {folder}: because another backup is at work") from None
    finally:
        os.close(handle)


def _empty(folder: int) -> None:
    """Empty the folder that is open, whatever has its name by now."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.name, dir_fd=folder)
            else:
                os.unlink(entry.name, dir_fd=folder)
