"""Files that hold a secret: their owner's alone, and whole or not there. All of it blocks."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tiltyard.runtime.atomic_file import flush_folder
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)


def read_private(path: Path, max_bytes: int) -> bytes | None:
    """Read at most `max_bytes` of a file; None when there is none.

    One that others may read, as a copy that was put back may be, gets mode 0600.

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
    """Write a file durably, with its folder where there is none.

    Raises:
        OSError: It cannot be written; what was there before still is.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with writing_private(path) as file:
        file.write(data)


def read_or_create(path: Path, max_bytes: int, make: Callable[[], bytes], *, what: str) -> bytes:
    """Read a file, or make it where there is none; the first of several makes it.

    Raises:
        OSError: It can be neither read nor written.
    """
    data = read_private(path, max_bytes)
    if data is None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with writing_private(path, put=os.link) as file:
                file.write(make())
            log.info("made a key: keep a copy of it", kind=what, path=str(path))
        except FileExistsError:
            pass
        data = read_private(path, max_bytes) or b""
    return data


@contextmanager
def writing_private(
    path: Path, put: Callable[[str, Path], None] = os.replace
) -> Iterator[IO[bytes]]:
    """Write a file of any size, in a folder that is there.

    Left without an error it is durable, and `put` in place of what was; else nothing is changed.

    Raises:
        OSError: It cannot be written.
    """
    with tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=f"{path.name}.", suffix=".draft", delete=False
    ) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            put(file.name, path)
        finally:
            Path(file.name).unlink(missing_ok=True)
    flush_folder(path.parent)
