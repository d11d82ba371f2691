"""Restores a backup: checks all of it in a folder, then moves it in place. All functions block.

    restore.draft   the files of the backup while they are checked
        │ rename: from here on nothing else can use the state directory
    restore.ready   the old files are moved away and replaced by these
        │ empty: the restore is complete
    removed

A restore killed before the rename leaves the old state; after it, nothing can use the directory
until the restore is repeated.
"""

import shutil
import tarfile
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO

from controlplane.backups.backup import DATABASE, MAX_KEY_BYTES, PARTS, REQUIRED, check_keys
from controlplane.domain.errors import StoreError
from controlplane.settings.model import Config
from controlplane.state_dir.lock import RESTORE_READY, replacing
from controlplane.state_dir.private_files import writing_private
from controlplane.storage.engine.database_copy import make_ready
from controlplane.storage.tables.accounting.restored import mark_restored
from tiltyard.runtime.atomic_file import flush_folder

_DRAFT = "restore.draft"
_REPLACED = "replaced-{:%Y%m%dT%H%M%S.%fZ}"
_FILES = (*PARTS, *(DATABASE + suffix for suffix in ("-wal", "-shm", "-journal")))
"""The files of a backup, and SQLite's own, which would corrupt another database."""


def restore(
    config: Config, file: BinaryIO, now: datetime, *, replace: bool
) -> tuple[str, Path | None]:
    """Replace the database and the keys by a backup. The old files are moved to a folder.

    Returns the time of the backup (RFC 3339), and the folder if there were old files.

    Raises:
        StoreError: The state directory is in use, it has a database and `replace` is false, the
            backup is incomplete or from a newer version, or a disk failed. Nothing was changed,
            unless the message is "cannot finish".
    """
    state_dir = config.state_dir
    with replacing(state_dir):
        if not replace and config.database.exists():
            raise StoreError(
                f"cannot restore to {state_dir}: it has a database: --force replaces it"
            )
        draft = state_dir / _DRAFT
        ready = state_dir / RESTORE_READY
        shutil.rmtree(draft, ignore_errors=True)
        try:
            draft.mkdir(mode=0o700)
            taken = _extract(file, draft)
            check_keys(draft)
            mark = partial(mark_restored, taken=taken, now=now.timestamp())
            make_ready(draft / DATABASE, mark)
            for path in ready.glob("*"):  # of an interrupted restore; rename needs it empty
                path.unlink()
            draft.rename(ready)
        except (OSError, StoreError) as error:
            raise StoreError(f"cannot restore to {state_dir}: {error}") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        try:
            flush_folder(state_dir)
            replaced = _move_old(state_dir, state_dir / _REPLACED.format(now.astimezone(UTC)))
            for path in ready.iterdir():
                path.rename(state_dir / path.name)
            flush_folder(state_dir)
            ready.rmdir()
            flush_folder(state_dir)
        except OSError as error:
            raise StoreError(f"cannot finish the restore in {state_dir}: {error}") from error
        return taken, replaced


def _extract(file: BinaryIO, folder: Path) -> str:
    """Extract an archive into a folder; return its creation time."""
    taken = datetime.fromtimestamp(0, UTC)
    try:
        with tarfile.open(fileobj=file, mode="r|") as archive:
            for member in archive:
                _check_member(member)
                taken = datetime.fromtimestamp(member.mtime, UTC)
                content = archive.extractfile(member)
                assert content is not None, "it is a regular file"
                with writing_private(folder / member.name) as copy:
                    shutil.copyfileobj(content, copy)
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise StoreError(f"the backup is damaged, or not a tar archive: {error}") from error
    for name in REQUIRED:
        if not (folder / name).exists():
            raise StoreError(f"the backup has no {name}: it is cut off, or something else")
    return taken.isoformat(timespec="seconds").replace("+00:00", "Z")


def _check_member(member: tarfile.TarInfo) -> None:
    name = member.name
    if name not in PARTS or member.type != tarfile.REGTYPE or member.issparse():
        raise StoreError(f"{name!r} does not belong in a backup")
    if name != DATABASE and member.size > MAX_KEY_BYTES:
        raise StoreError(f"{name} in the backup is too large: {member.size} bytes")


def _move_old(state_dir: Path, folder: Path) -> Path | None:
    old = [state_dir / name for name in _FILES if (state_dir / name).exists()]
    if not old:
        return None
    folder.mkdir(mode=0o700)
    for path in old:
        path.rename(folder / path.name)
    flush_folder(folder)
    return folder
