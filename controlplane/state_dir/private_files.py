"""Files that hold a secret: their owner's alone, and whole or not there. All of it blocks."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)


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
                log.warning(
                    "others could read or write a file: it has mode 0600 now", path=str(path)
                )
            return file.read(max_bytes)
    except FileNotFoundError:
        return None


def write_private(path: Path, data: bytes) -> None:
    """Have a file for certain, also after a power cut, with its folder where there is none.

    Raises:
        OSError: It cannot be written; what was there before still is.
    """
    _draft(path, data).replace(path)
    flush_folder(path.parent)


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
    flush_folder(path.parent)
    return True


@contextmanager
def writing_private(path: Path) -> Iterator[BinaryIO]:
    """Write a file of any size, in a folder that is there.

    Left without an error it is there for certain, in place of what was; else nothing is changed.

    Raises:
        OSError: It cannot be written.
    """
    draft, handle = _begin_draft(path)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(handle)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Have what was made, renamed or removed in a folder outlast a power cut.

    Raises:
        OSError: The disk fails.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_or_create(path: Path, max_bytes: int, make: Callable[[], bytes], *, what: str) -> bytes:
    """Read a file, or make it where there is none; whoever makes it first has made it.

    Raises:
        OSError: It can be neither read nor written.
    """
    data = read_private(path, max_bytes)
    if data is None:
        if create_private(path, make()):
            log.info("made a key: keep a copy of it", kind=what, path=str(path))
        data = read_private(path, max_bytes) or b""
    return data


def _draft(path: Path, data: bytes) -> Path:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft, handle = _begin_draft(path)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return draft


def _begin_draft(path: Path) -> tuple[Path, int]:
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}.draft")
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    return draft, os.open(draft, flags, 0o600)
