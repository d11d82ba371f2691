"""Backups: the database and the keys in one tar archive, also while the control plane serves.

All of it blocks. The files are copied into the state directory first, so that a slow target does
not hold a transaction of the database open.
"""

import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from controlplane.backups.parts import (
    DATABASE,
    KEYS,
    MAX_KEY_BYTES,
    PARTS,
    REQUIRED,
    check_keys,
)
from controlplane.domain.errors import StoreError
from controlplane.settings.model import Config
from controlplane.state_dir.lock import backing_up
from controlplane.state_dir.private_files import read_private, writing_private
from controlplane.storage.engine.database_copy import copy_database

_DRAFT = "backup.draft"
"""A folder in the state directory for the copies, which the next backup removes after a kill."""


def back_up(config: Config, target: Path, now: datetime, *, replace: bool) -> None:
    """Write a backup to a file of mode 0600, which appears whole or not at all.

    Raises:
        StoreError: The file exists and `replace` is false; a key is missing; the database or a key
            is damaged; or a disk failed.
    """
    if not replace and os.path.lexists(target):
        raise StoreError(f"cannot write {target}: it exists: --force replaces it")
    try:
        with writing_private(target) as file:
            write_backup(config, file, now)
    except OSError as error:
        raise StoreError(f"cannot write {target}: {error.strerror}") from error


def write_backup(config: Config, file: BinaryIO, now: datetime) -> None:
    """Write a backup to an open file or a pipe.

    Raises:
        StoreError: As of `back_up`.
    """
    state_dir = config.state_dir
    if not state_dir.is_dir():
        raise StoreError(f"cannot back up {state_dir}: there is no such directory")
    with backing_up(state_dir):
        try:
            with _copied(config) as folder:
                _write_archive(folder, file, now)
        except (OSError, StoreError) as error:
            raise StoreError(f"cannot back up {state_dir}: {error}") from error


@contextmanager
def _copied(config: Config) -> Iterator[Path]:
    """Copy the files into a folder, the keys after the database.

    A password in the database was sealed with a key that already was in its file.
    """
    folder = config.state_dir / _DRAFT
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(mode=0o700)
        copy_database(config.database, folder / DATABASE)
        for name in KEYS:
            key = read_private(config.state_dir / name, MAX_KEY_BYTES + 1)
            if key is not None:
                (folder / name).write_bytes(key)
            elif name in REQUIRED:
                raise StoreError(
                    f"{name} is missing: put a copy of it back, or run `init` to create another"
                )
        check_keys(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_archive(folder: Path, file: BinaryIO, now: datetime) -> None:
    with tarfile.open(fileobj=file, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        for path in (folder / name for name in PARTS):
            if path.exists():
                member = tarfile.TarInfo(path.name)
                member.size, member.mtime = path.stat().st_size, int(now.timestamp())
                member.mode = 0o600
                with path.open("rb") as source:
                    archive.addfile(member, source)
    file.flush()
