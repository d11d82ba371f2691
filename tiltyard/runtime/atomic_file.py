"""Files that are replaced whole: a reader finds the old one or the new one, never a part.

All of it blocks.
"""

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
    """Write a file beside its place and put it there; `durable` also after a power cut.

    It belongs to `owner`, a user and group id, before it is visible. Only one may
    write a file at a time.

    Raises:
        OSError: It cannot be written; what was there before still is.
    """
    beside = path.with_name(f".{path.name}.new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            if owner is not None:
                os.fchown(descriptor, *owner)
            file.write(data)
            file.flush()
            if durable:
                os.fsync(descriptor)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    if durable:
        flush_folder(path.parent)


def signature(*paths: Path) -> Signature:
    """Identify the files that these names lead to now; empty when one cannot be found.

    Other permissions make another signature, too: the file may be readable by now.
    """
    try:
        found = [path.stat() for path in paths]
    except OSError:
        return ()
    return tuple((each.st_dev, each.st_ino, each.st_ctime_ns) for each in found)


def flush_folder(path: Path) -> None:
    """Have what was made, renamed or removed in a folder outlast a power cut.

    Raises:
        OSError: The disk fails.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
