"""Files of ended containers as .tar.gz, spooled first and served afterwards.

The engine locks a container while its archive is read, so the archive is read at full speed into
a bounded file, filtered and counted, and served from there.
"""

import asyncio
import posixpath
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import IO

from isal import isal_zlib

from agent.artifacts.spool_room import SpoolRoom
from agent.artifacts.tar_filter import TarFilter, TarLimits
from agent.domain.containers.engine import Engine
from agent.domain.errors import (
    DiskFullError,
    EngineTimeoutError,
    InvalidArgumentError,
    PathNotFoundError,
    ReaderTooSlowError,
)
from agent.logs.reading import CHUNK_BYTES
from agent.state.record import Records

Send = Callable[[bytes], Awaitable[None]]  # Returns when the reader accepts more

LONGEST_PATH_BYTES = 4096
BATCH_BYTES = 1024 * 1024  # Bytes filtered and packed per step: amortises the switch to a thread

_LEVEL = 1
"""Packs like zlib's level 1, over five times faster; level 0 expands random data by 23 %."""
_GZIP = 16 + isal_zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class FetchTimeouts:
    """Seconds to read an archive (100 MB take one or two), to send a chunk and to send all."""

    pack: float = 30.0
    idle: float = 30.0
    serve: float = 600.0


def checked_path(path: str) -> str:
    """Return the normalised absolute path; InvalidArgumentError if no file can have it.

    With a trailing slash Docker would follow a symbolic link and name the host's folders.
    """
    if not path.startswith("/"):
        raise InvalidArgumentError("path", "it is not absolute")
    if "\0" in path or len(path.encode("utf-8", "surrogateescape")) > LONGEST_PATH_BYTES:
        raise InvalidArgumentError("path", "no file can have this path")
    return posixpath.normpath("/" + path.lstrip("/"))


@dataclass(eq=False)
class Artifacts:
    """Packs and serves artifacts within limits."""

    engine: Engine
    records: Records
    room: SpoolRoom
    _: KW_ONLY
    limits: TarLimits = field(default_factory=TarLimits)
    timeouts: FetchTimeouts = field(default_factory=FetchTimeouts)

    async def fetch(self, container: str, path: str, send: Send, *, account: str) -> None:
        """Read the whole archive, then pass it to `send` in chunks of at most CHUNK_BYTES.

        `account`: the owner of the container, which has a share of the room.

        Raises:
            PathNotFoundError: The path is missing, or a socket, a FIFO or a device.
            ReaderTooSlowError: After the first chunk; all other errors come before it.
            AgentError: The archive is too large, there is no room, or the engine fails.
        """
        path = checked_path(path)
        folder = self.records.spool_dir
        try:
            # Unlinked at creation, so that nothing can stay behind.
            async with (
                self.room.taken(container, account) as share,
                self.records.opened(lambda: tempfile.TemporaryFile(dir=folder)) as spool,
            ):
                size = await self._packed(container, path, spool)
                self.room.packed(share, size)
                await self._served(spool, send)
        except OSError as error:
            raise DiskFullError(str(folder), error.strerror or str(error)) from error

    async def _packed(self, container: str, path: str, spool: IO[bytes]) -> int:
        """Write the whole archive and return its size; packs a batch while reading the next."""
        root = posixpath.basename(path).encode("utf-8", "surrogateescape") or b"."
        packer = _Packer(TarFilter(root, self.limits), spool)
        packing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        packing.set_result(None)
        try:
            async with (
                asyncio.timeout(self.timeouts.pack),
                self.engine.archive(container, path) as chunks,
            ):
                batch = list[bytes]()
                size = 0
                async for chunk in chunks:
                    batch.append(chunk)
                    size += len(chunk)
                    if size >= BATCH_BYTES:
                        await packing
                        packing = asyncio.create_task(
                            self.records.run(packer.add, batch), name="pack"
                        )
                        batch = []
                        size = 0
                await packing
        except TimeoutError as error:
            raise EngineTimeoutError("archive") from error
        finally:
            await asyncio.gather(packing, return_exceptions=True)
        size = await self.records.run(packer.finish, batch)
        if not packer.tar.entries_kept:
            raise PathNotFoundError(path)
        return size

    async def _served(self, spool: IO[bytes], send: Send) -> None:
        now = asyncio.get_running_loop().time
        end = now() + self.timeouts.serve
        while chunk := await self.records.run(spool.read, CHUNK_BYTES):
            try:
                async with asyncio.timeout(min(self.timeouts.idle, end - now())):
                    await send(chunk)
            except TimeoutError as error:
                raise ReaderTooSlowError from error


class _Packer:
    """Filters, compresses and writes, on a thread of the records."""

    def __init__(self, tar: TarFilter, spool: IO[bytes]) -> None:
        self.tar = tar
        self._gzip = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _GZIP)
        self._spool = spool

    def add(self, chunks: Sequence[bytes]) -> None:
        self._spool.write(self._gzip.compress(self.tar.feed(b"".join(chunks))))

    def finish(self, chunks: Sequence[bytes]) -> int:
        """Add the last chunks, rewind the spool and return its size in bytes."""
        self.add(chunks)
        self._spool.write(self._gzip.compress(self.tar.close()) + self._gzip.flush())
        size = self._spool.tell()
        self._spool.seek(0)
        return size
