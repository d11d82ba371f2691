"""Write a session's log to its directory, then cut it to LOG_BYTES. All methods block.

The engine drops nothing below that size, so a log without the line DROPPED is complete.
"""

import contextlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from agent.domain.containers.engine import LOG_BYTES, LogPiece

DROPPED = b"[tiltyard: the beginning of this log was dropped, %d bytes or more]\n"
"""The first line of a log that was cut."""

_LEAST_CUT = 2**16  # Minimum bytes to drop, so that the line DROPPED fits in their place
_LONGEST_LINE = 2**17  # A longer line is cut anywhere
_BLOCK = 2**20


class SealedLog:
    """A temporary file that is renamed to the log once it is complete; opened when first written.

    Calls are serialised: one whose caller was cancelled may still run during `close`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._beside = path.with_name(f".{path.name}.new")
        self._file: IO[bytes] | None = None
        self.is_closed = False
        self._lock = threading.Lock()
        self._written = 0
        self._counted = 0

    def add(self, pieces: Sequence[LogPiece]) -> None:
        """Append pieces."""
        with self._lock:
            self._written += self._opened().write(b"".join(piece.data for piece in pieces))
            self._counted += sum(piece.size for piece in pieces)

    def add_words(self, words: bytes) -> None:
        """Append a line of the agent."""
        with self._lock:
            self._written += self._opened().write(words)

    def finish(self) -> int:
        """Cut the file if needed, sync, rename and close it; returns its size in bytes."""
        with self._lock:
            file = self._opened()
            file.flush()
            if self._counted > LOG_BYTES:
                kept = self._written * LOG_BYTES // self._counted
                file.seek(max(self._written - kept, _LEAST_CUT))
                file.readline(_LONGEST_LINE)
                _move_to_front(file.fileno(), file.tell())
            os.fsync(file.fileno())
            self._beside.replace(self._path)
            size = os.fstat(file.fileno()).st_size
            self._close()
            return size

    def close(self) -> None:
        """Close the file, and remove it unless it was finished."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        self.is_closed = True
        if self._file is not None:
            self._beside.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # write errors have been reported
                self._file.close()

    def _opened(self) -> IO[bytes]:
        if self.is_closed:
            raise ValueError("the log is closed")
        if self._file is None:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)  # the disk was full at its rebuild
            self._file = self._beside.open("wb+")
        return self._file


def _move_to_front(descriptor: int, begin: int) -> None:
    """Replace everything before `begin` by the line DROPPED, in place."""
    words = DROPPED % begin
    os.pwrite(descriptor, words, 0)
    end = len(words)
    while block := os.pread(descriptor, _BLOCK, begin):
        moved = os.pwrite(descriptor, block, end)
        begin += moved
        end += moved
    os.ftruncate(descriptor, end)
