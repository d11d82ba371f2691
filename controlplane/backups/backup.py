"""Backups: the database and the keys in one tar archive, also while the control plane runs.

All functions block. The files are copied into the state directory first, so that a slow target
does not keep a database transaction open.
"""

import os
import shutil
import tarfile
from datetime import datetime
from pathlib import Path
from typing import IO

from cryptography.fernet import Fernet

from controlplane.domain.errors import StoreError
from controlplane.pki.authorities import Authorities
from controlplane.pki.tickets import KEY_BYTES
from controlplane.settings.model import Config
from controlplane.state_dir.lock import using
from controlplane.state_dir.private_files import read_private, writing_private
from controlplane.storage.engine.database_copy import copy_database

DATABASE = "controlplane.db"
AUTHORITY = "authority.pem"
TICKET_KEY = "ticket.key"
REGISTRY_KEY = "registry.key"

KEYS = (AUTHORITY, TICKET_KEY, REGISTRY_KEY)
REQUIRED = (AUTHORITY, TICKET_KEY, DATABASE)
"""`registry.key` exists only once there was a password of a registry or a secret of a webhook."""

PARTS = (*KEYS, DATABASE)
"""The files of a backup, in order. The database is last, so a truncated archive lacks it."""

MAX_KEY_BYTES = 16 * 1024
_DRAFT = "backup.draft"
"""Folder for the copies, in the state directory. After a kill, the next backup removes it."""


def back_up(config: Config, target: Path, now: datetime, *, replace: bool) -> None:
    """Write a backup atomically to a file of mode 0600.

    Raises:
        StoreError: The file exists and `replace` is false, a key is missing, the database or a
            key is damaged, or a disk failed.
    """
    if not replace and os.path.lexists(target):
        raise StoreError(f"cannot write {target}: it exists: --force replaces it")
    try:
        with writing_private(target) as file:
            write_backup(config, file, now)
    except OSError as error:
        raise StoreError(f"cannot write {target}: {error.strerror}") from error


def write_backup(config: Config, file: IO[bytes], now: datetime) -> None:
    """Write a backup to an open file or pipe. Raises as `back_up`."""
    state_dir = config.state_dir
    if not state_dir.is_dir():
        raise StoreError(f"cannot back up {state_dir}: there is no such directory")
    with using(state_dir):
        folder = state_dir / _DRAFT
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir(mode=0o700)
            _copy(config, folder)
            _write_archive(folder, file, now)
        except (OSError, StoreError) as error:
            raise StoreError(f"cannot back up {state_dir}: {error}") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def check_keys(folder: Path) -> None:
    """Check the key files that exist in a folder. Blocks.

    Raises:
        StoreError: A key is damaged.
        OSError: A file cannot be read.
    """
    for name, parse in (
        (AUTHORITY, Authorities.from_pem),
        (TICKET_KEY, _check_ticket_key),
        (REGISTRY_KEY, Fernet),
    ):
        if (folder / name).exists():
            try:
                parse((folder / name).read_bytes())
            except ValueError as error:
                raise StoreError(f"{name} is damaged: {error}") from error


def _copy(config: Config, folder: Path) -> None:
    """Copy the files, keys last: the key of each password in the copied database then exists."""
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


def _write_archive(folder: Path, file: IO[bytes], now: datetime) -> None:
    def owned(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime = int(now.timestamp())
        member.mode = 0o600
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(fileobj=file, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        for path in (folder / name for name in PARTS):
            if path.exists():
                archive.add(path, path.name, filter=owned)
    file.flush()


def _check_ticket_key(key: bytes) -> None:
    if len(key) != KEY_BYTES:
        raise ValueError(f"it has {len(key)} bytes instead of {KEY_BYTES}")
