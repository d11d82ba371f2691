"""Read session output: from the engine, or from the log sealed after the container's end."""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Protocol

from agent.domain.containers.engine import Engine, LogPiece, name_of
from agent.domain.errors import (
    DiskFullError,
    EngineError,
    EngineTimeoutError,
    LogGoneError,
    ReadersBusyError,
)
from agent.domain.sessions.session import Session
from agent.logs.follower import Follower, Rest, no_rest
from agent.logs.pace import FollowPace
from agent.logs.sealed import SealedLog
from agent.state.record import Records
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.failpoints import Reach
from tiltyard.runtime.fair_share import exceeds_share
from tiltyard.runtime.tasks import first_completed

CHUNK_BYTES = 256 * 1024  # Bytes per message: 860 MB/s measured, against 200 with 16 KiB

EACH_HOST = 64
"""Concurrent followers, and other readers; an account may have as many as stay free for others.
Each follower takes one of root's inotify instances, by default 128."""
EACH_SESSION = 16

STEP_SECONDS = 1.0  # Poll interval of a follower without notifications

UNREADABLE = b"\n[tiltyard: a part of this log was lost: %s]\n"
"""The last line of a log that the engine could not read completely."""


class LogReaders:
    """Limits log readers, separately for followers and others; for one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pace = FollowPace()
        self._followed: list[Session] = []
        self._read: list[Session] = []

    @contextmanager
    def taken(self, session: Session, *, follow: bool) -> Iterator[Rest]:
        """Hold a reader slot; ReadersBusyError if none is free.

        Yields what the reader awaits after each part: a pause, if it follows a flood.
        """
        what, slots = ("followers", self._followed) if follow else ("readers", self._read)
        account = session.spec.identity.account
        mine = sum(each.spec.identity.account == account for each in slots)
        if sum(each.internal_id == session.internal_id for each in slots) >= EACH_SESSION:
            raise ReadersBusyError(f"this session has {EACH_SESSION} {what} already")
        if len(slots) >= EACH_HOST:
            raise ReadersBusyError(f"the host has {len(slots)} {what} already")
        if exceeds_share(mine, 1, len(slots), EACH_HOST):
            raise ReadersBusyError(
                f"the account has {mine} {what} on the host, the rest is reserved for others"
            )
        slots.append(session)
        reader = object()

        async def rest(took: float) -> None:
            if delay := self._pace.delay(reader, took, now=self._clock.monotonic()):
                await self._clock.sleep(delay)

        try:
            yield rest if follow else no_rest
        finally:
            self._pace.leave(reader)
            slots.remove(session)


class Followed(Protocol):
    """A session to follow; `Life` is one."""

    @property
    def session(self) -> Session:
        """The current session."""
        ...

    async def wait_started(self) -> None:
        """Return when the start has succeeded or failed."""
        ...

    async def wait_for(self, reached: Callable[[Session], bool]) -> None:
        """Return when `reached` is true."""
        ...


async def seal(
    engine: Engine, records: Records, session: Session, failpoint: Reach, *, partly: bool = False
) -> tuple[int, bool]:
    """Copy the newest LOG_BYTES of an ended container's log to the session's directory.

    Returns its size in bytes, and whether it lacks a part. `partly`: if the engine cannot read all
    of it, keep the rest and a last line that says so. The failpoint `log.copied` precedes the
    rename.

    Raises:
        DiskFullError: The log cannot be written.
        AgentError: An error of the engine, such as ContainerGoneError.
    """
    path = records.log_path(session.internal_id)
    name = name_of(session)
    first: Sequence[LogPiece] = ()
    last: Sequence[LogPiece] = ()
    count = 0
    damaged = False
    log = SealedLog(path)
    try:
        try:
            async with engine.logs(name) as answer:
                async for pieces in answer:
                    first = first or pieces[:1]
                    last = pieces[-1:]
                    count += len(pieces)
                    await records.run(log.add, pieces)
            await _check_complete(engine, name, count=count, first=first, last=last)
        except EngineError as error:
            if not partly:
                raise
            damaged = True
            await records.run(log.add_words, UNREADABLE % str(error).encode())
        await failpoint("log.copied")
        return await records.run(log.finish), damaged
    except OSError as error:
        raise DiskFullError(str(path), error.strerror or str(error)) from error
    finally:
        if not log.is_closed:
            await records.run(log.close)


async def _check_complete(
    engine: Engine, name: str, *, count: int, first: Sequence[LogPiece], last: Sequence[LogPiece]
) -> None:
    """Raise EngineError if the engine left out a part of a log that it read as `count` pieces.

    Since version 27 it skips the rest of a damaged file without an error. For a tail it reads the
    lengths of pieces, backwards: the log must end with `last` and have no piece before `first`.
    A tail of a damaged log may crash 20.10: the longer one is only read if the ends agree.
    """
    for tail, expected in {1: last, count + 1: first}.items():  # one if the log is empty
        try:
            async with engine.logs(name, tail=tail) as answer:
                found: Sequence[LogPiece] = await anext(answer, [])  # () breaks it in Python 3.11
        except EngineTimeoutError:
            return  # it takes the engine too long to count millions of pieces: unknown
        if _marks(found[:1]) != _marks(expected):
            raise EngineError("read the log", "a damaged part was left out")


def _marks(pieces: Sequence[LogPiece]) -> list[tuple[int, bytes, bool]]:
    """Return the stream, the time and the end of line of pieces, which identify them."""
    return [(piece.stream, piece.time, piece.ends_line) for piece in pieces]


async def read(
    engine: Engine,
    records: Records,
    clock: Clock,
    life: Followed,
    *,
    follow: bool,
    rest: Rest = no_rest,
) -> AsyncGenerator[bytes]:
    """Yield a session's output from its beginning, in chunks of at most CHUNK_BYTES.

    `follow`: continue across restarts until the session ends. `rest`: of `LogReaders.taken`.
    LogGoneError if there is no log.
    """
    await life.wait_started()
    session = life.session
    if session.container_removed and not session.log_sealed:
        raise LogGoneError(session.internal_id)
    if session.log_sealed:
        chunks = _sealed(records, session.internal_id)
    else:
        follower = Follower(engine, life.session, clock, rest)
        chunks = _unsealed(follower, clock, life, follow=follow)
    async with aclosing(chunks):
        async for chunk in chunks:
            for start in range(0, len(chunk), CHUNK_BYTES):
                yield chunk[start : start + CHUNK_BYTES]


async def _unsealed(
    follower: Follower, clock: Clock, life: Followed, *, follow: bool
) -> AsyncGenerator[bytes]:
    """Read repeatedly; a session that had ended before a complete pass is read to its end."""
    while True:
        session = life.session
        live = follow and session.process is not None
        async with aclosing(follower.read_on(live=live)) as chunks:
            async for chunk in chunks:
                yield chunk
        if not follower.complete:
            await clock.sleep(STEP_SECONDS)
        elif session.state.ended or not follow:
            return
        else:
            await _changed(life, session, clock)


async def _changed(life: Followed, session: Session, clock: Clock) -> None:
    """Wait for a change of state or a restart, at most STEP_SECONDS."""
    then = session.state, session.restart_count
    change = life.wait_for(lambda now: (now.state, now.restart_count) != then)
    await first_completed(change, clock.sleep(STEP_SECONDS), f"log-{session.internal_id}")


async def _sealed(records: Records, internal_id: str) -> AsyncGenerator[bytes]:
    path = records.log_path(internal_id)
    try:
        with records.kept(internal_id):
            async with records.opened(lambda: path.open("rb")) as file:
                while chunk := await records.run(file.read, CHUNK_BYTES):
                    yield chunk
    except FileNotFoundError:
        raise LogGoneError(internal_id) from None
