"""Atomic replacement of files: readers see the old or the new content. All functions block."""

import os
from pathlib import Path

Signature = tuple[tuple[int, int, int], ...]


def write(
    path: Path,
    data: bytes,
    mode: int,
    *,
    durable: bool = True,
    owner: tuple[int, int] | None = None,
) -> None:
    """Write a file atomically; `durable` makes it survive a power failure.

    `owner`: user and group id. Concurrent writes of one file are not allowed.

    Raises:
        OSError: The write failed; the old file remains.
    """
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            if owner is not None:
                os.fchown(descriptor, *owner)
            file.write(data)
            file.flush()
            if durable:
                os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        flush_folder(path.parent)


def signature(*paths: Path) -> Signature:
    """Return a value that changes with the files or their permissions; empty if one is missing."""
    try:
        found = [path.stat() for path in paths]
    except OSError:
        return ()
    return tuple((each.st_dev, each.st_ino, each.st_ctime_ns) for each in found)


def flush_folder(path: Path) -> None:
    """Flush a folder, so that changes of its entries survive a power failure."""
    _flush(path, os.O_DIRECTORY)


def flush_file(path: Path) -> None:
    """Flush a file, so that its content survives a power failure, if its folder does."""
    _flush(path, 0)


def _flush(path: Path, flags: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
