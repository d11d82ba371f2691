"""Restores a backup: checks all of it in a folder, then moves it in place. All functions block.

    restore.draft      new/ has the files of the backup, which are checked
        │ rename: from here on nothing else can use the state directory
    restore.ready      the old files are moved here, which `moved` notes; then those of new/ take
        │              their place
        │ rename: the restore is complete
    replaced-<time>    the old files

A restore killed before the first rename leaves the old state; after it, nothing can use the
directory until the restore is repeated. A repeated one keeps the old files of the first one, not
those that the first one has put in place.
"""

import shutil
import tarfile
from contextlib import suppress
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
_NEW = "new"
_MOVED = "moved"
_REPLACED = "replaced-{:%Y%m%dT%H%M%S.%fZ}"
_FILES = (*PARTS, *(DATABASE + suffix for suffix in ("-wal", "-shm", "-journal")))
"""The files of a backup, and SQLite's own, which would corrupt another database."""


def restore(
    config: Config, file: BinaryIO, now: datetime, *, replace: bool
) -> tuple[str, Path | None]:
    """Replace the database and the keys by a backup. The old files are kept in a folder.

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
            new = draft / _NEW
            draft.mkdir(mode=0o700)
            new.mkdir(mode=0o700)
            taken = _extract(file, new)
            check_keys(new)
            mark = partial(mark_restored, taken=taken, now=now.timestamp())
            make_ready(new / DATABASE, mark)
            _begin(draft, ready)
        except (OSError, StoreError) as error:
            raise StoreError(f"cannot restore to {state_dir}: {error}") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        try:
            _move_old(state_dir, ready)
            _put_in_place(state_dir, ready / _NEW)
            replaced = _finish(ready, state_dir / _REPLACED.format(now.astimezone(UTC)))
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


def _begin(draft: Path, ready: Path) -> None:
    """Rename the draft, or let its files replace those of an interrupted restore."""
    if ready.exists():
        shutil.rmtree(ready / _NEW, ignore_errors=True)
        (draft / _NEW).rename(ready / _NEW)
    else:
        draft.rename(ready)


def _move_old(state_dir: Path, ready: Path) -> None:
    """Move the old files away. Once that is noted, the state directory has others."""
    flush_folder(state_dir)
    if (ready / _MOVED).exists():
        return
    for name in _FILES:
        if (state_dir / name).exists():
            (state_dir / name).rename(ready / name)
    flush_folder(state_dir)
    (ready / _MOVED).touch(mode=0o600)
    flush_folder(ready)


def _put_in_place(state_dir: Path, new: Path) -> None:
    """Move the new files into the state directory; remove others of an interrupted restore."""
    for name in _FILES:
        if (new / name).exists():
            (new / name).rename(state_dir / name)
        else:
            (state_dir / name).unlink(missing_ok=True)
    flush_folder(state_dir)
    new.rmdir()


def _finish(ready: Path, replaced: Path) -> Path | None:
    """Keep the old files, if there are any, under their final name, which is returned."""
    has_old = any(path.name != _MOVED for path in ready.iterdir())
    ready.rename(replaced)
    with suppress(OSError):  # the restore is complete
        (replaced / _MOVED).unlink()
        if not has_old:
            replaced.rmdir()
    flush_folder(replaced.parent)
    return replaced if has_old else None
