"""Files of ended containers as .tar.gz, spooled first and served afterwards.

The engine holds a container's lock while an archive is unread (M9), so it is read at full speed
into a bounded file, counted on the way, and served from there.
"""

from __future__ import annotations

import asyncio
import functools
import tempfile
import zlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import IO

from agent.engine import Engine
from agent.errors import ArtifactTooLarge, DiskFull, InvalidArgument
from agent.logs import CHUNK_BYTES
from agent.record import Records

LARGEST_BYTES = 100_000_000
"""Uncompressed tar that one download may hold (interface.md, Limits)."""
LONGEST_PATH_BYTES = 4096
CONCURRENT_SPOOLS = 2
"""Archives packed at one time: each takes a core and up to LARGEST_BYTES of disk."""
BATCH_BYTES = 1024 * 1024
"""What is compressed in one go: enough that the hand-over to a thread does not count."""
_GZIP = 16 + zlib.MAX_WBITS


def checked_path(path: str) -> str:
    """The path when it is absolute and can exist; InvalidArgument otherwise."""
    if not path.startswith("/"):
        raise InvalidArgument("path", "it is not absolute")
    if "\0" in path or len(path.encode("utf-8", "surrogateescape")) > LONGEST_PATH_BYTES:
        raise InvalidArgument("path", "no file can have this path")
    return path


class Artifacts:
    """Packs and serves artifacts, a few at a time."""

    def __init__(self, engine: Engine, records: Records) -> None:
        self._engine = engine
        self._records = records
        self._slots = asyncio.Semaphore(CONCURRENT_SPOOLS)

    async def fetch(self, container: str, path: str) -> AsyncGenerator[bytes]:
        """Yield the archive in chunks of at most CHUNK_BYTES, after all of it was read.

        Raises PathNotFound, ContainerGone, ArtifactTooLarge, DiskFull before the first chunk.
        """
        checked_path(path)
        try:
            # Unlinked from the beginning: however this ends, nothing stays behind.
            opener = functools.partial(_nameless, self._records.spool_dir)
            async with self._records.opened(opener) as spool:
                async with self._slots:
                    await self._pack(container, path, spool)
                await self._records.run(spool.seek, 0)
                while chunk := await self._records.run(spool.read, CHUNK_BYTES):
                    yield chunk
        except OSError as error:
            cause = error.strerror or str(error)
            raise DiskFull(str(self._records.spool_dir), cause) from error

    async def _pack(self, container: str, path: str, spool: IO[bytes]) -> None:
        pack = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
        batch, total = bytearray(), 0
        async with self._engine.archive(container, path) as chunks:
            async for chunk in chunks:
                total += len(chunk)
                if total > LARGEST_BYTES:
                    raise ArtifactTooLarge(LARGEST_BYTES)
                batch += chunk
                if len(batch) >= BATCH_BYTES:
                    await self._records.run(_compress, pack, bytes(batch), spool)
                    batch.clear()
        await self._records.run(_compress, pack, bytes(batch), spool, last=True)


def _nameless(folder: Path) -> IO[bytes]:
    return tempfile.TemporaryFile(dir=folder)


def _compress(pack: zlib._Compress, data: bytes, spool: IO[bytes], *, last: bool = False) -> None:
    spool.write(pack.compress(data))
    if last:
        spool.write(pack.flush())
        spool.flush()
