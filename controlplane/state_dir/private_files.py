"""Files that hold a secret: their owner's alone, and whole or not there. All of it blocks."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tiltyard.runtime import atomic_file
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
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic_file.write(path, data, 0o600)


def create_private(path: Path, data: bytes) -> bool:
    """The same, unless there is a file already: False.

    Raises:
        OSError: It cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _draft(path) as (draft, file):
        file.write(data)
        _flush(file)
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            return False
    atomic_file.flush_folder(path.parent)
    return True


@contextmanager
def writing_private(path: Path) -> Iterator[BinaryIO]:
    """Write a file of any size, in a folder that is there.

    Left without an error it is there for certain, in place of what was; else nothing is changed.

    Raises:
        OSError: It cannot be written.
    """
    with _draft(path) as (draft, file):
        yield file
        _flush(file)
        draft.replace(path)
    atomic_file.flush_folder(path.parent)


def read_or_create(path: Path, max_bytes: int, make: Callable[[], bytes], *, what: str) -> bytes:
    """Read a file, or make it where there is none; the first of several makes it.

    Raises:
        OSError: It can be neither read nor written.
    """
    data = read_private(path, max_bytes)
    if data is None:
        if create_private(path, make()):
            log.info("made a key: keep a copy of it", kind=what, path=str(path))
        data = read_private(path, max_bytes) or b""
    return data


@contextmanager
def _draft(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Begin a file beside its place, of a unique name; remove what is left of it."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}.draft")
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    handle = os.open(draft, flags, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            yield draft, file
    finally:
        draft.unlink(missing_ok=True)


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
