"""A log on its way into the session's directory: everything, then cut to LOG_BYTES.

An engine drops nothing before it holds more than that, by the same measure, so a log without the
line that says so is complete. All methods block.
"""

import contextlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from agent.domain.engine import LOG_BYTES, LogPiece

DROPPED = b"[tiltyard: the beginning of this log was dropped, %d bytes or more]\n"
"""The first line of a log that was longer than what is kept of one."""

_LEAST_CUT = 2**16
"""Bytes, so that the line in their place has room."""
_LONGEST_LINE = 2**17
"""Where a line does not end for so long, any place to cut will do."""
_BLOCK = 2**20


class SealedLog:
    """A file beside the log's place, which takes that place once it is complete.

    A call whose caller has gone may still be at work when `close` comes: one at a time.
    """

    def __init__(self, path: Path, *, kept_bytes: int = LOG_BYTES) -> None:
        self._path = path
        self._beside = path.with_name(f".{path.name}.new")
        self._kept_bytes = kept_bytes
        self._file: IO[bytes] | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._written = 0
        self._counted = 0

    def add(self, pieces: Sequence[LogPiece]) -> None:
        """Write pieces in their order."""
        with self._lock:
            self._written += self._opened().write(b"".join(piece.data for piece in pieces))
            self._counted += sum(piece.size for piece in pieces)

    def add_words(self, words: bytes) -> None:
        """Write a line of our own."""
        with self._lock:
            self._written += self._opened().write(words)

    def finish(self) -> int:
        """Cut what is too long and put the file into its place, durably; returns its bytes."""
        with self._lock:
            file = self._opened()
            file.flush()
            if self._counted > self._kept_bytes:
                kept = self._written * self._kept_bytes // self._counted
                file.seek(max(self._written - kept, _LEAST_CUT))
                file.readline(_LONGEST_LINE)
                _move_to_front(file.fileno(), file.tell())
            os.fsync(file.fileno())
            self._beside.replace(self._path)
            return os.fstat(file.fileno()).st_size

    def close(self) -> None:
        """Close the file; one that is not finished does not keep its room on the disk."""
        with self._lock:
            self._closed = True
            if self._file is not None:
                self._beside.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # write errors have been reported
                    self._file.close()

    def _opened(self) -> IO[bytes]:
        if self._closed:
            raise ValueError("the log is closed")
        if self._file is None:
            self._file = self._beside.open("wb+")
        return self._file


def _move_to_front(descriptor: int, begin: int) -> None:
    """Drop what is before `begin`, which needs no more room; a line in its place says so."""
    words = DROPPED % begin
    os.pwrite(descriptor, words, 0)
    end = len(words)
    while block := os.pread(descriptor, _BLOCK, begin):
        moved = os.pwrite(descriptor, block, end)
        begin, end = begin + moved, end + moved
    os.ftruncate(descriptor, end)
