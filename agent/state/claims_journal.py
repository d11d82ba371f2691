"""The journal of claims: the records of claimed sessions, until record.json is replaced.

Sessions claim standbys or prepared containers. A session in a prepared container has no
record.json at first. A claim appends one line. All waiting lines are flushed together, so that
many claims cost one flush. A line counts until the session's next change replaces record.json, or
until the line is deleted; the file is rewritten when most of it no longer counts. Remains of lines
that were not flushed before a power failure are ignored: their callers got no answer.
"""

import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from tiltyard.runtime.atomic_file import write
from tiltyard.runtime.batches import Batches

LEAST_REWRITTEN_BYTES = 1024 * 1024  # A smaller file is not worth rewriting


class ClaimsJournal:
    """Owns the file; `run` runs blocking work on a thread."""

    def __init__(
        self,
        path: Path,
        run: Callable[[Callable[[bytes, list[bytes]], None], bytes, list[bytes]], Awaitable[None]],
    ) -> None:
        self._path = path
        self._run = run
        self._lines: dict[str, bytes] = {}  # The lines that count, by internal id
        self._size = 0
        self._batches = Batches(self._append, "claims journal")

    def read(self) -> bytes:
        """Read the file: records in lines, oldest first; the last ones may be damaged. Blocks."""
        return self._path.read_bytes() if self._path.exists() else b""

    def rewrite(self, records: Mapping[str, bytes]) -> None:
        """Keep the records that count, by internal id; a full disk keeps all. Blocks.

        This also flushes lines that a killed agent has written and not flushed; they count from
        now on.
        """
        self._lines = {internal_id: b"%b\n" % record for internal_id, record in records.items()}
        try:
            self._replace(list(self._lines.values()))
        except OSError:  # the disk is full
            self._size = self.read().rfind(b"\n") + 1

    async def append(self, internal_id: str, record: bytes) -> None:
        """Write a record without newlines durably. Raises OSError."""
        await self._batches.add((internal_id, b"%b\n" % record))

    def drop(self, internal_id: str) -> None:
        """Forget a line, since the session has a newer record or is deleted."""
        self._lines.pop(internal_id, None)

    async def finish(self) -> None:
        """Wait until nothing is written."""
        await self._batches.finish()

    async def _append(self, batch: list[tuple[str, bytes]]) -> list[None]:
        self._lines.update(batch)
        counting = list(self._lines.values())
        try:
            await self._run(self._write, b"".join(line for _, line in batch), counting)
        except OSError:
            for internal_id, _ in batch:
                self.drop(internal_id)
            raise
        return [None] * len(batch)

    def _write(self, lines: bytes, counting: list[bytes]) -> None:
        size = self._size + len(lines)
        if size > LEAST_REWRITTEN_BYTES and size > 2 * sum(map(len, counting)):
            self._replace(counting)
            return
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.seek(self._size)
                file.write(lines)
            os.fdatasync(descriptor)
        except OSError:
            # Refused claims must not count after a restart.
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, self._size)
                os.fdatasync(descriptor)
            raise
        finally:
            os.close(descriptor)
        self._size = size

    def _replace(self, lines: list[bytes]) -> None:
        content = b"".join(lines)
        write(self._path, content, 0o600)
        self._size = len(content)
