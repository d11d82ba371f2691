"""Follow a log: every line complete, in order and once, with a marker for dropped output."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing

from agent.domain.containers.engine import LOG_BYTES, Engine, LogPiece, name_of
from agent.domain.errors import (
    ContainerGoneError,
    EngineError,
    EngineTimeoutError,
    EngineUnavailableError,
    LogGoneError,
)
from agent.domain.sessions.session import Session
from agent.logs.cursor import Cursor
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

LIVE_BYTES = LOG_BYTES // 2
"""Bytes followed live: one file of the engine, less the read-ahead of up to a MiB. Later output
is polled."""
TAIL_PIECES = 1000  # Minimum tail of a poll; a thousand lines take the engine 14 ms

LIVE_SECONDS = 600.0
STEP_ANSWER_SECONDS = 60.0
"""Timeout of one answer: a dropped file that a slow reader has open still takes disk space."""

READ_TRIES = 5
"""Consecutive failures that mean a damaged log; 26.1 may fail once while it rotates files."""

MISSING = b"[tiltyard: what was written here was dropped before it could be read]\n"
"""Replaces output that a follower was too slow for."""


Rest = Callable[[float], Awaitable[None]]
"""Waits after the lines of a part were processed, which took this number of seconds."""


async def no_rest(_: float) -> None:
    """Wait for nothing."""


class Follower:
    """A reader of one session's log; `rest` is awaited after each part."""

    def __init__(
        self, engine: Engine, session: Session, clock: Clock, rest: Rest = no_rest
    ) -> None:
        self._engine = engine
        self._session = session
        self._clock = clock
        self._rest = rest
        self._took = 0.0  # Seconds that the last part took
        self._cursor = Cursor()
        self._tail = TAIL_PIECES
        self._within_line = False
        self._gap_marked = False
        self._begun = False
        self._failures = 0
        self.complete = False  # True if `read_on` reached the end that the log had when it began

    async def read_on(self, *, live: bool) -> AsyncGenerator[bytes]:
        """Yield new output. `live`: wait for more until the run ends, up to LIVE_BYTES.

        An engine failure ends it incomplete, to be called again. Raises LogGoneError, and the
        engine's error before the first answer or after READ_TRIES failures without new output.
        """
        self.complete = False
        try:
            if live and self._cursor.read_bytes < LIVE_BYTES:
                async with aclosing(self._live()) as chunks:
                    async for data in chunks:
                        yield data
            async with aclosing(self._catch_up()) as chunks:
                async for data in chunks:
                    yield data
        except ContainerGoneError:
            raise LogGoneError(self._session.internal_id) from None
        except (EngineUnavailableError, EngineTimeoutError, EngineError) as error:
            self._failures += isinstance(error, EngineError)
            if not self._begun or self._failures >= READ_TRIES:
                raise
            session = self._session.internal_id
            log.info("the log is requested again", session=session, error=str(error))
        else:
            self._failures = 0
            self.complete = True

    async def _live(self) -> AsyncGenerator[bytes]:
        self._cursor.seek(from_first=True)
        name = name_of(self._session)
        async with self._engine.logs(name, follow=True, longest=LIVE_SECONDS) as answer:
            self._begun = True
            async for pieces in answer:
                if data := self._new(pieces):
                    yield data
                if self._cursor.over or self._cursor.read_bytes >= LIVE_BYTES:
                    return
                await self._rest(self._took)

    async def _catch_up(self) -> AsyncGenerator[bytes]:
        """Continue in the engine's current log, or after a gap."""
        for tail in self._tails():
            self._cursor.seek(whole=tail is None)
            async with aclosing(self._ask(tail)) as chunks:
                async for data in chunks:
                    yield data
            if self._cursor.found:
                return
        if not self._gap_marked:
            self._gap_marked = True
            yield b"\n" + MISSING if self._within_line else MISSING
        self._cursor.jump()
        async with aclosing(self._ask(None)) as chunks:
            async for data in chunks:
                yield data

    def _tails(self) -> list[int | None]:
        """Tails in which to search for the position, in this order."""
        if self._cursor.has_mark:
            return [self._tail, None]
        # For a longer line it is unknown whether its beginning was dropped.
        return [None] if self._cursor.read_bytes < LIVE_BYTES else []

    async def _ask(self, tail: int | None) -> AsyncGenerator[bytes]:
        count = 0
        name = name_of(self._session)
        longest = STEP_ANSWER_SECONDS
        async with self._engine.logs(name, tail=tail, longest=longest) as answer:
            self._begun = True
            async for pieces in answer:
                if data := self._new(pieces):
                    count += len(pieces)
                    yield data
                if self._cursor.over:
                    break
                await self._rest(self._took)
        self._tail = max(TAIL_PIECES, 2 * count)

    def _new(self, pieces: Sequence[LogPiece]) -> bytes:
        began = self._clock.monotonic()
        data = b"".join(piece.data for piece in self._cursor.take(pieces))
        self._took = self._clock.monotonic() - began
        if data:
            self._failures = 0
            self._gap_marked = False
            self._within_line = not data.endswith(b"\n")
        return data
