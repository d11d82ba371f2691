"""Secret files, of mode 0600 and written atomically. All functions block."""

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
    """Read at most `max_bytes` of a file, None if it is missing. Corrects its mode to 0600."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                os.fchmod(file.fileno(), 0o600)
                log.warning(
                    "a file was accessible to other users: set its mode to 0600", path=str(path)
                )
            return file.read(max_bytes)
    except FileNotFoundError:
        return None


def write_private(path: Path, data: bytes) -> None:
    """Write a file durably and create its folder.

    Raises:
        OSError: The write failed; the old file remains.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with writing_private(path) as file:
        file.write(data)


def read_or_create(path: Path, max_bytes: int, make: Callable[[], bytes], *, what: str) -> bytes:
    """Read a file, or create it. If several processes create it, the first wins."""
    data = read_private(path, max_bytes)
    if data is None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with writing_private(path, put=os.link) as file:
                file.write(make())
            log.info("created a key: keep a copy", kind=what, path=str(path))
        except FileExistsError:
            pass
        data = read_private(path, max_bytes) or b""
    return data


@contextmanager
def writing_private(
    path: Path, put: Callable[[str, Path], None] = os.replace
) -> Iterator[IO[bytes]]:
    """Write a file in an existing folder. Moved in place with `put` and durable on success.

    Raises:
        OSError: The write failed; nothing has changed.
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
