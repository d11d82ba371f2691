"""Files that hold a secret: their owner's alone, and whole or not there. All of it blocks."""

import logging
import os
import secrets
from pathlib import Path

_log = logging.getLogger(__name__)


def read_private(path: Path, max_bytes: int) -> bytes | None:
    """Read at most so much of a file; None when there is none.

    One that others may read, as a copy that was put back may be, is taken from them.

    Raises:
        OSError: It cannot be read.
    """
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                os.fchmod(file.fileno(), 0o600)
                _log.warning("others could read or write %s: it has mode 0600 now", path)
            return file.read(max_bytes)
    except FileNotFoundError:
        return None


def write_private(path: Path, data: bytes) -> None:
    """Have a file for certain, also after a power cut, with its folder where there is none.

    Raises:
        OSError: It cannot be written; what was there before still is.
    """
    _draft(path, data).replace(path)
    _flush(path.parent)


def create_private(path: Path, data: bytes) -> bool:
    """The same, unless there is a file already: False.

    Raises:
        OSError: It cannot be written.
    """
    draft = _draft(path, data)
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    _flush(path.parent)
    return True


def _draft(path: Path, data: bytes) -> Path:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(f".{secrets.token_hex(8)}.draft")
    handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(handle)
    return draft


def _flush(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
