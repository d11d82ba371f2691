"""Restoring a backup: checked whole, then put in place of what is there. All of it blocks.

Until the checked parts stand under the name `restore-….ready` nothing of the old state has been
touched. From then on the restore goes on whoever was killed: `finish` is run again by the next
that serves or restores, and does what is left. What was there before is kept, in `replaced-…`.
"""

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from cryptography.fernet import Fernet

from controlplane.backups.backup_file import (
    AUTHORITY,
    DATABASE,
    MANIFEST,
    PARTS,
    REGISTRY_KEY,
    TICKET_KEY,
    BackupReader,
    BadBackupError,
    Manifest,
)
from controlplane.domain.errors import StoreError
from controlplane.pki.authorities import Authorities
from controlplane.pki.tickets import KEY_BYTES
from controlplane.settings.model import Config
from controlplane.state_dir.lock import replacing
from controlplane.storage.engine.database_copy import NEWEST_SCHEMA, make_ready
from tiltyard.runtime.atomic_file import flush_folder
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

_DRAFT = "restore.draft"
_READY = "restore-{}.ready"
_REPLACED = "replaced-{}"
_JOURNALS = tuple(DATABASE + suffix for suffix in ("-wal", "-shm", "-journal"))
"""What SQLite keeps beside a database, and must not find beside another."""

_ROOM_KEPT = 16 * 1024 * 1024
"""Bytes that a restore leaves free on the disk."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What was put in place, and where that is which was there before, if anything was."""

    manifest: Manifest
    replaced: Path | None


def restore(config: Config, file: BinaryIO, now: datetime, *, replace: bool) -> Restored:
    """Put a backup in place of the database and the keys, which are kept aside.

    Raises:
        StoreError: Somebody uses the state directory; it has a database that is not to be
            replaced; the backup is not whole, of another environment or of a newer program, or
            cannot be read or written. Nothing was changed.
    """
    state_dir = config.state_dir
    with replacing(state_dir):
        finish(state_dir)
        if not replace and config.database.exists():
            raise StoreError(
                f"cannot restore to {state_dir}: because it has a database: --force puts it aside"
            )
        try:
            manifest = _stage(config, file, now)
            return Restored(manifest, finish(state_dir))
        except BadBackupError as error:
            raise StoreError(f"cannot restore the backup: because {error}") from error
        except OSError as error:
            raise StoreError(f"cannot restore to {state_dir}: because {error}") from error
        finally:
            shutil.rmtree(state_dir / _DRAFT, ignore_errors=True)


def finish(state_dir: Path) -> Path | None:
    """Go on with a restore that was broken off, if there is one; only for who has the lock.

    Gives the folder that has what was there before, None when nothing was.

    Raises:
        StoreError: It cannot be finished: a disk fails.
    """
    try:
        shutil.rmtree(state_dir / _DRAFT, ignore_errors=True)
        found = _unfinished(state_dir)
        return None if found is None else _finish(state_dir, found)
    except (OSError, BadBackupError) as error:
        raise StoreError(
            f"cannot finish the restore in {state_dir}: because {error}: fix that, and try again"
        ) from error


def refuse_unfinished(state_dir: Path) -> None:
    """Leave a state directory alone that is half a restored one.

    Raises:
        StoreError: A restore was broken off there.
    """
    if _unfinished(state_dir) is not None:
        raise StoreError(
            f"cannot use {state_dir}: because a restore was broken off there: `serve` finishes it,"
            " and so does another `restore`"
        )


def check_keys(folder: Path, told: str) -> None:
    """Check that the keys in a folder are keys, so far as they are there.

    Raises:
        StoreError: One is not; the text begins with what is `told`.
        OSError: One cannot be read.
    """
    for name, check in (
        (AUTHORITY, Authorities.from_pem),
        (TICKET_KEY, _check_ticket_key),
        (REGISTRY_KEY, Fernet),
    ):
        if (folder / name).exists():
            try:
                check((folder / name).read_bytes())
            except ValueError as error:
                raise StoreError(f"{told}: because {name} is damaged: {error}") from error


def _check_ticket_key(key: bytes) -> None:
    if len(key) != KEY_BYTES:
        raise ValueError(f"it has {len(key)} bytes instead of {KEY_BYTES}")


def _stage(config: Config, file: BinaryIO, now: datetime) -> Manifest:
    """Have all parts, checked, in a folder that is named as ready."""
    state_dir, backup = config.state_dir, BackupReader(file)
    manifest = backup.manifest
    if manifest.environment != config.environment:
        raise BadBackupError(
            f"it is of the environment {manifest.environment!r}, and the settings are of"
            f" {config.environment!r}: this is another deployment's"
        )
    if manifest.schema_number > NEWEST_SCHEMA:
        raise BadBackupError(
            f"its schema {manifest.schema_number} is newer than {NEWEST_SCHEMA}, which this"
            " program knows: use the program that made it, or a newer one"
        )
    needed = sum(part.size for part in manifest.parts) + _ROOM_KEPT
    if needed > shutil.disk_usage(state_dir).free:
        raise BadBackupError(f"it needs {needed // 2**20} MiB of {state_dir}'s disk")
    draft = state_dir / _DRAFT
    draft.mkdir(mode=0o700)
    backup.extract(draft)
    check_keys(draft, "cannot restore the backup")
    make_ready(
        draft / DATABASE, manifest.schema_number, manifest.time, int(now.timestamp() * 1000)
    )
    flush_folder(draft)
    draft.rename(state_dir / _READY.format(now.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%fZ")))
    flush_folder(state_dir)
    return manifest


def _unfinished(state_dir: Path) -> Path | None:
    return next(iter(sorted(state_dir.glob(_READY.format("*")))), None)


def _finish(state_dir: Path, ready: Path) -> Path | None:
    stamp = ready.name.removeprefix("restore-").removesuffix(".ready")
    aside = state_dir / _REPLACED.format(stamp)
    aside.mkdir(mode=0o700, exist_ok=True)
    names = Manifest.read((ready / MANIFEST).read_bytes()).names
    for name in PARTS:
        if name in names and not (ready / name).exists():
            continue  # it stands in its place
        for old in (name, *_JOURNALS) if name == DATABASE else (name,):
            if (state_dir / old).exists():
                (state_dir / old).rename(aside / old)
        flush_folder(aside)
        flush_folder(state_dir)  # the old one is gone for certain before the new one is there
        if name in names:
            (ready / name).rename(state_dir / name)
    flush_folder(state_dir)
    ready.rename(state_dir / _DRAFT)
    shutil.rmtree(state_dir / _DRAFT)
    if not any(aside.iterdir()):
        aside.rmdir()
        return None
    log.info("put a backup in place; what was there before is kept", path=str(aside))
    return aside
