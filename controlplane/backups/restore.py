"""Restoring a backup: checked whole in a folder, then put in place. All of it blocks.

    restore.draft   the files of the backup and links to those that they replace, being checked
        │ rename: from here on the restore happens
    restore.ready   `finish` puts the files in place; it can be repeated whole
        │ rename: it is done
    restore.draft   removed

Killed before the first rename, a restore leaves the old state; after it, the new one, since
`finish` runs before a control plane serves and before another restore.
"""

import os
import shutil
import tarfile
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from controlplane.backups.parts import DATABASE, MAX_KEY_BYTES, PARTS, REQUIRED, check_keys
from controlplane.domain.errors import StoreError
from controlplane.settings.model import Config
from controlplane.state_dir.lock import RESTORE_READY, replacing
from controlplane.state_dir.private_files import writing_private
from controlplane.storage.engine.database_copy import make_ready
from tiltyard.runtime.atomic_file import flush_folder
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

_DRAFT = "restore.draft"
_REPLACED = "replaced-{:%Y%m%dT%H%M%S.%fZ}"
_FILES = (*PARTS, *(DATABASE + suffix for suffix in ("-wal", "-shm", "-journal")))
"""The files of a backup, and those that SQLite must not find beside another database."""

_ROOM_KEPT = 16 * 1024 * 1024
"""Bytes of the disk that a restore leaves free."""


@dataclass(frozen=True, slots=True)
class Restored:
    """`taken` is when the backup was made (RFC 3339); `replaced` the folder of the old files."""

    taken: str
    replaced: Path | None


def restore(config: Config, file: BinaryIO, now: datetime, *, replace: bool) -> Restored:
    """Put a backup in place of the database and the keys, which are kept in a folder.

    Raises:
        StoreError: The state directory is in use; it has a database and `replace` is false; the
            backup is not whole or of a newer program; or a disk failed. Nothing was changed,
            unless the text says that the restore cannot be finished.
    """
    state_dir = config.state_dir
    with replacing(state_dir):
        finish(state_dir)
        if not replace and config.database.exists():
            raise StoreError(
                f"cannot restore to {state_dir}: it has a database: --force replaces it"
            )
        draft, replaced = state_dir / _DRAFT, _REPLACED.format(now.astimezone(UTC))
        try:
            draft.mkdir(mode=0o700)
            taken = _extract(file, draft)
            check_keys(draft)
            make_ready(draft / DATABASE, taken, int(now.timestamp() * 1000))
            has_replaced = _link_old(state_dir, draft / replaced)
            flush_folder(draft)
            draft.rename(state_dir / RESTORE_READY)
        except (OSError, StoreError) as error:
            raise StoreError(f"cannot restore to {state_dir}: {error}") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        finish(state_dir)
        return Restored(taken, state_dir / replaced if has_replaced else None)


def finish(state_dir: Path) -> None:
    """Finish a restore that was interrupted, if there is one; the caller holds the lock.

    Raises:
        StoreError: A disk failed. It can be tried again.
    """
    draft, ready = state_dir / _DRAFT, state_dir / RESTORE_READY
    shutil.rmtree(draft, ignore_errors=True)
    if not ready.exists():
        return
    try:
        flush_folder(state_dir)  # the first rename is durable before anything old is removed
        for name in _FILES:
            (state_dir / name).unlink(missing_ok=True)
            if (ready / name).exists():
                (state_dir / name).hardlink_to(ready / name)
        for replaced in ready.glob("replaced-*"):
            replaced.rename(state_dir / replaced.name)
            log.info("restored a backup: the files before it are kept", path=replaced.name)
        flush_folder(state_dir)
        ready.rename(draft)
        flush_folder(state_dir)
    except OSError as error:
        raise StoreError(f"cannot finish the restore in {state_dir}: {error}") from error
    shutil.rmtree(draft, ignore_errors=True)


def _extract(file: BinaryIO, folder: Path) -> str:
    """Copy the files of an archive into a folder; return when it was made.

    Raises:
        StoreError: It has something else in it, lacks something, or is damaged.
        OSError: It cannot be read, or a copy not be written.
    """
    found: set[str] = set()
    taken = datetime.fromtimestamp(0, UTC)
    try:
        with tarfile.open(fileobj=file, mode="r|") as archive:
            for member in archive:
                _check_member(member, found, shutil.disk_usage(folder).free - _ROOM_KEPT)
                found.add(member.name)
                taken = datetime.fromtimestamp(member.mtime, UTC)
                content = archive.extractfile(member)
                assert content is not None, "it is a regular file"
                with writing_private(folder / member.name) as copy:
                    shutil.copyfileobj(content, copy)
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise StoreError(f"the backup is damaged, or not a tar archive: {error}") from error
    for name in REQUIRED:
        if name not in found:
            raise StoreError(f"the backup has no {name}: it is cut off, or something else")
    return taken.isoformat(timespec="seconds").replace("+00:00", "Z")


def _check_member(member: tarfile.TarInfo, found: set[str], room: int) -> None:
    name = member.name
    if name not in PARTS:
        raise StoreError(f"{name!r} does not belong in a backup")
    if name in found:
        raise StoreError(f"the backup has {name} twice")
    if member.type != tarfile.REGTYPE or member.issparse():
        raise StoreError(f"{name} in the backup is not a regular file")
    if not 0 <= member.size <= (room if name == DATABASE else MAX_KEY_BYTES):
        raise StoreError(f"{name} in the backup is too large: {member.size} bytes")


def _link_old(state_dir: Path, folder: Path) -> bool:
    """Link the files that are replaced into a folder; whether there are any."""
    folder.mkdir(mode=0o700)
    for name in _FILES:
        with suppress(FileNotFoundError):
            os.link(state_dir / name, folder / name, follow_symlinks=False)
    if not any(folder.iterdir()):
        folder.rmdir()
        return False
    flush_folder(folder)
    return True
