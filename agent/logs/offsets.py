"""Offsets in a log: bytes in the order in which the log has them, since the session's first run.

The engine drops the oldest lines of a log of more than LOG_BYTES without saying how many. So the
offsets of a log are known as long as it is shorter, by the upper estimate `LogPiece.size`.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from agent.domain.containers.engine import LOG_BYTES, Engine, name_of
from agent.domain.errors import ContainerGoneError, EngineError, LogGoneError
from agent.logs.follower import MISSING
from agent.logs.reading import Followed
from agent.logs.sealed import DROPPED
from agent.state.record import Records

_CUT = DROPPED.partition(b"%d")[0]


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The length of a log in bytes; `is_whole` if nothing of it was dropped or lost."""

    length: int
    is_whole: bool

    def begin(self, offset: int) -> int | None:
        """Return where a read from an offset begins, at most at the end; None if unknown."""
        return min(offset, self.length) if self.is_whole else None


async def measured(engine: Engine, records: Records, life: Followed) -> LogExtent:
    """Measure the log of a session as it is now.

    Raises:
        LogGoneError: There is no log.
        AgentError: An error of the engine.
    """
    await life.wait_started()
    session = life.session
    internal_id = session.internal_id
    if session.log_sealed:
        path = records.log_path(internal_id)
        try:
            with records.kept(internal_id):
                async with records.opened(lambda: path.open("rb")) as file:
                    first = await records.run(file.read, len(_CUT))
                    length = await records.run(file.seek, 0, 2)
        except FileNotFoundError:
            raise LogGoneError(internal_id) from None
        return LogExtent(length, is_whole=first != _CUT and not session.log_damaged)
    length = 0
    size = 0
    try:
        async with engine.logs(name_of(session)) as answer:
            async for pieces in answer:
                length += sum(len(piece.data) for piece in pieces)
                size += sum(piece.size for piece in pieces)
                if size > LOG_BYTES:
                    return LogExtent(length, is_whole=False)
    except ContainerGoneError:
        raise LogGoneError(internal_id) from None
    return LogExtent(length, is_whole=True)


async def from_offset(chunks: AsyncGenerator[bytes], offset: int) -> AsyncGenerator[bytes]:
    """Yield a log without its first bytes.

    Raises:
        EngineError: Lines were dropped before they could be read, so that the offset is lost.
    """
    skipped = 0
    async with aclosing(chunks):
        async for chunk in chunks:
            if chunk.removeprefix(b"\n") == MISSING:
                raise EngineError("read the log", "lines were dropped before they could be read")
            rest = chunk[max(0, offset - skipped) :]
            skipped += len(chunk) - len(rest)
            if rest:
                yield rest
