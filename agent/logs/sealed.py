"""A log on its way into the session's directory: everything, then cut to LOG_BYTES.

An engine drops nothing before it holds more than that, by the same measure, so a log without the
line that says so is complete. All methods block.
"""

import contextlib
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from agent.domain.engine import LOG_BYTES, LogPiece

DROPPED = b"[tiltyard: the beginning of this log was dropped, %d bytes or more]\n"
"""The first line of a log that was longer than what is kept of one."""

_LINES_STEP = 2**16
"""Bytes between places where a log may be cut, which are beginnings of lines."""
_PIECES_STEP = 2**20
"""Where lines do not end for so long, any place will do."""
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
        self._within_lines: set[int] = set()
        self._places = [(0, 0)]
        """Where the log may be cut: bytes written and counted up to there."""

    def add(self, pieces: Iterable[LogPiece]) -> None:
        """Write pieces in their order."""
        with self._lock:
            self._opened().write(b"".join(map(self._noted, pieces)))

    def add_words(self, words: bytes) -> None:
        """Write a line of our own."""
        with self._lock:
            self._opened().write(words)
            self._written += len(words)

    def finish(self) -> int:
        """Cut what is too long and put the file into its place, durably; returns its bytes."""
        with self._lock:
            file = self._opened()
            file.flush()
            if self._counted > self._kept_bytes:
                _move_to_front(file.fileno(), self._first_kept())
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

    def _noted(self, piece: LogPiece) -> bytes:
        step = _PIECES_STEP if self._within_lines else _LINES_STEP
        if self._written - self._places[-1][0] >= step:
            self._places.append((self._written, self._counted))
        if piece.ends_line:
            self._within_lines.discard(piece.stream)
        else:
            self._within_lines.add(piece.stream)
        self._written += len(piece.data)
        self._counted += piece.size
        return piece.data

    def _first_kept(self) -> int:
        fits = (
            written
            for written, counted in self._places
            if self._counted - counted <= self._kept_bytes
        )
        return next(fits, self._written)


def _move_to_front(descriptor: int, begin: int) -> None:
    """Drop what is before `begin`, which needs no more room; a line in its place says so."""
    words = DROPPED % begin
    os.pwrite(descriptor, words, 0)
    end = len(words)
    while block := os.pread(descriptor, _BLOCK, begin):
        moved = os.pwrite(descriptor, block, end)
        begin, end = begin + moved, end + moved
    os.ftruncate(descriptor, end)
