"""The output of sessions: served from the engine while they live, from a sealed file afterwards.

The engine captures (design.md, Logs and artifacts). Once a container has ended, and before
anything may remove it, its log is read once into the session's directory.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import IO, Protocol

from agent.engine import Engine, container_name
from agent.errors import ContainerGone, DiskFull, EngineError, LogGone
from agent.record import Records
from agent.session import Session

CHUNK_BYTES = 256 * 1024
"""What one message carries: 860 MB/s measured, against 200 with 16 KiB."""

UNREADABLE = b"\n[tiltyard: the rest of this log was lost: %s]\n"
"""The last line of a log that the engine could not read to its end."""


class Followed(Protocol):
    """A session that a reader can stay with; `Lifecycle` is one."""

    @property
    def session(self) -> Session:
        """The session as it stands."""
        ...

    async def settled_start(self) -> None:
        """Return when the start has succeeded or failed."""
        ...

    async def wait_for(self, reached: Callable[[Session], bool]) -> None:
        """Return when the session is as asked."""
        ...


async def seal(
    engine: Engine, records: Records, internal_id: str, *, partly: bool = False
) -> None:
    """Copy an ended container's log into the session's directory, whole or not at all.

    With `partly` what the engine fails to read is left out, and a last line says so. Raises
    ContainerGone, DiskFull and the engine's errors; the file is there or it is not.
    """
    path = records.log_path(internal_id)
    beside = path.with_name(".log.new")
    try:
        async with (
            records.opened(lambda: beside.open("wb")) as file,
            engine.logs(container_name(internal_id)) as chunks,
        ):
            try:
                async for chunk in chunks:
                    await records.run(file.write, chunk)
            except EngineError as error:
                if not partly:
                    raise
                await records.run(file.write, UNREADABLE % str(error).encode())
            await records.run(_finish, file, beside, path)
    except OSError as error:
        raise DiskFull(str(path), error.strerror or str(error)) from error


async def read(
    engine: Engine, records: Records, life: Followed, *, follow: bool
) -> AsyncGenerator[bytes]:
    """Yield a session's output from its beginning, in chunks of at most CHUNK_BYTES.

    With `follow` the end of the session ends it, restarts in between do not: the container's log
    goes on where it was, so what was sent is counted and passed over. Raises LogGone.
    """
    sent = 0
    while True:
        await life.settled_start()
        session = life.session
        if session.container_removed and not session.log_sealed:
            raise LogGone(session.internal_id)
        chunks = (
            _sealed(records, session.internal_id)
            if session.log_sealed
            else _live(engine, session.internal_id, follow=follow)
        )
        async with aclosing(chunks), aclosing(_after(sent, chunks)) as rest:
            async for chunk in rest:
                sent += len(chunk)
                yield chunk
        over = session.log_sealed or not follow
        if over or not await _started_again(life, session.restart_count):
            return


async def _started_again(life: Followed, restarts: int) -> bool:
    """Wait for the run after `restarts` restarts; False when there is none."""
    await life.wait_for(lambda now: now.state.ended or now.restart_count > restarts)
    return life.session.restart_count > restarts


async def _after(skip: int, chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Pass over the first `skip` bytes."""
    async for chunk in chunks:
        rest = chunk[skip:]
        skip = max(0, skip - len(chunk))
        if rest:
            yield rest


async def _live(engine: Engine, internal_id: str, *, follow: bool) -> AsyncGenerator[bytes]:
    try:
        async with engine.logs(container_name(internal_id), follow=follow) as chunks:
            async for chunk in chunks:
                for start in range(0, len(chunk), CHUNK_BYTES):
                    yield chunk[start : start + CHUNK_BYTES]
    except ContainerGone:
        raise LogGone(internal_id) from None


async def _sealed(records: Records, internal_id: str) -> AsyncGenerator[bytes]:
    path = records.log_path(internal_id)
    try:
        async with records.opened(lambda: path.open("rb")) as file:
            while chunk := await records.run(file.read, CHUNK_BYTES):
                yield chunk
    except FileNotFoundError:
        raise LogGone(internal_id) from None


def _finish(file: IO[bytes], beside: Path, path: Path) -> None:
    file.flush()
    os.fsync(file.fileno())
    beside.replace(path)
