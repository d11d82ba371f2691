"""One reader who stays with a session's log: every line complete, in order and once.

What the engine dropped before it could be read is marked by one line.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from agent.domain.engine import LOG_BYTES, Engine, LogPiece, name_of
from agent.domain.errors import (
    ContainerGoneError,
    EngineError,
    EngineTimeoutError,
    EngineUnavailableError,
    LogGoneError,
)
from agent.domain.session import Session
from agent.logs.cursor import Cursor
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

LIVE_BYTES = LOG_BYTES // 2
"""What the engine streams as it is written: one file, with what is read ahead, less than a MiB.
Beyond, a follower asks for what is new, step by step."""
TAIL_PIECES = 1000
"""How far back a step asks at least; a thousand lines take the engine 14 ms."""

LIVE_SECONDS = 600.0
STEP_ANSWER_SECONDS = 60.0
"""How long one answer is read at most: what a slow reader has open takes room though dropped."""

READ_TRIES = 5
"""Failures in a row after which a log counts as damaged: an engine that begins a new file at that
moment may fail (26.1)."""

MISSING = b"[tiltyard: what was written here was dropped before it could be read]\n"
"""The line in place of output that a follower was too slow for."""


class Follower:
    """The position of a reader in a log."""

    def __init__(self, engine: Engine, session: Session) -> None:
        self._engine = engine
        self._session = session
        self._cursor = Cursor()
        self._tail = TAIL_PIECES
        self._within_line = False
        self._gap_marked = False
        self._begun = False
        self._failures = 0
        self.complete = False
        """True when `read_on` came to the end of the log as it was when it began."""

    async def read_on(self, *, live: bool) -> AsyncGenerator[bytes]:
        """Yield what is new. With `live` wait for more until the run ends, while that is sound.

        An engine that goes away or fails within the log ends it, to be called again, READ_TRIES
        times without anything new. Raises LogGoneError and the engine's errors, at first at once.
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

    async def _catch_up(self) -> AsyncGenerator[bytes]:
        """Continue in the engine's current log, or after what it has dropped."""
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
        """How much of the log to look for the place in, one after the other."""
        if self._cursor.has_mark:
            return [self._tail, None]
        # For a longer line it is unknown whether its beginning was dropped.
        return [None] if self._cursor.read_bytes < LIVE_BYTES else []

    async def _ask(self, tail: int | None) -> AsyncGenerator[bytes]:
        count = 0
        name, longest = name_of(self._session), STEP_ANSWER_SECONDS
        async with self._engine.logs(name, tail=tail, longest=longest) as answer:
            self._begun = True
            async for pieces in answer:
                if data := self._new(pieces):
                    count += len(pieces)
                    yield data
                if self._cursor.over:
                    break
        self._tail = max(TAIL_PIECES, 2 * count)

    def _new(self, pieces: Sequence[LogPiece]) -> bytes:
        data = b"".join(piece.data for piece in self._cursor.take(pieces))
        if data:
            self._failures = 0
            self._gap_marked = False
            self._within_line = not data.endswith(b"\n")
        return data
