"""The session directory: what a host remembers of a session, atomically replaced.

    <state_dir>/                 0700
      agent_id                   made once
      lock                       held while an agent runs on this directory
      sessions/<internal id>/    0700
        record.json              the session, whole
        log                      its output, once sealed
        public/                  0755, seen by the container at /run/tiltyard
          session.json           0644, what the game may know of itself
      tombstones/<internal id>   stops that came before their start
      spool/                     artifacts on their way

Every file is written beside its place, flushed, renamed, and its folder flushed: a reader finds
the old one or the new one, also after a power cut. All methods block; `Records` runs them on a
pool of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import json
import logging
import os
import shutil
import uuid
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, ParamSpec, TypeVar

from pydantic import TypeAdapter, ValidationError

from agent.errors import DiskFull
from agent.session import FORMAT, Session

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

TOMBSTONE_SECONDS = 3600.0
"""How long a stop refuses a start that comes after it (design.md, POST /session, step 6)."""
THREADS = 4
"""Enough that one slow flush does not hold up the others; a disk gains nothing from more."""

_SESSION = TypeAdapter(Session)


def encode_session(session: Session) -> bytes:
    """The content of record.json."""
    return _dump({"format": FORMAT, "session": _SESSION.dump_python(session, mode="json")})


def decode_session(data: bytes) -> Session:
    """Read record.json; ValueError when it is damaged or of an unknown format."""
    record = json.loads(data)
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError("not a record of a format that this agent knows")
    return _SESSION.validate_python(record.get("session"), strict=False)


def encode_label(session: Session) -> str:
    """The record for the container's label, as of its creation, without what may be secret.

    It is what a session is rebuilt from when its directory is lost.
    """
    return encode_session(session.with_changes(spec=session.spec.tells_no_secrets)).decode()


def public_view(session: Session) -> bytes:
    """The content of session.json (decisions.md, session file). `expire_time` in milliseconds."""
    identity = session.spec.identity
    expire = session.deadline.expire_time if session.deadline else None
    return _dump(
        {
            "id": identity.session_id,
            "host": session.host,
            "ports": [
                {"type": port.protocol.value, "container": port.container, "host": port.host}
                for port in session.ports
            ],
            "labels": dict(identity.labels),
            "external_id": identity.external_id or None,
            "expire_time": None if expire is None else round(expire * 1000),
        }
    )


class Records:
    """All session directories of one agent, below an absolute `state_dir`.

    Writing raises DiskFull. The caller orders the writes of one session: its own task alone does
    them.
    """

    def __init__(self, state_dir: Path) -> None:
        self._root = state_dir
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="records")
        self._running: set[asyncio.Future[Any]] = set()
        self._locked: IO[bytes] | None = None

    @property
    def spool_dir(self) -> Path:
        """Where artifacts wait for their reader."""
        return self._root / "spool"

    def directory(self, internal_id: str) -> Path:
        """The directory of a session."""
        return self._root / "sessions" / internal_id

    def public_dir(self, internal_id: str) -> Path:
        """The folder that the container sees."""
        return self.directory(internal_id) / "public"

    def log_path(self, internal_id: str) -> Path:
        """The sealed log."""
        return self.directory(internal_id) / "log"

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking file work on the pool; a cancelled wait does not cut it off."""
        call = functools.partial(function, *args, **kwargs)
        running = asyncio.get_running_loop().run_in_executor(self._pool, call)
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return await asyncio.shield(running)

    @contextlib.asynccontextmanager
    async def opened(self, opener: Callable[[], IO[bytes]]) -> AsyncIterator[IO[bytes]]:
        """Open a file on the pool and close it there, however the wait for either ends."""
        opening = asyncio.ensure_future(self.run(opener))
        try:
            file = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_late)
            raise
        try:
            yield file
        finally:
            await self.run(file.close)

    async def open(self) -> str:
        """Make what is missing, empty the spool, and return the agent's id.

        RuntimeError when another agent runs on this directory.
        """
        return await self.run(self._open)

    async def create(self, session: Session) -> None:
        """Make a session's directory with its first record."""
        await self.run(self._create, session)

    async def save(self, session: Session) -> None:
        """Replace a session's record."""
        await self.run(self._save, session)

    async def publish(self, session: Session) -> None:
        """Replace what the container sees of its session."""
        await self.run(self._publish, session)

    async def delete(self, internal_id: str) -> None:
        """Remove a session's directory; nothing happens when there is none."""
        await self.run(shutil.rmtree, self.directory(internal_id), ignore_errors=True)

    async def load(self) -> tuple[list[Session], list[str]]:
        """All sessions on disk by creation, and the ids of directories that cannot be read."""
        return await self.run(self._load)

    async def add_tombstone(self, internal_id: str, now: float) -> None:
        """Remember that this session must not start."""
        await self.run(self._add_tombstone, internal_id, now)

    async def load_tombstones(self, now: float) -> dict[str, float]:
        """When each stop was remembered, in Unix time; those too old are removed."""
        return await self.run(self._load_tombstones, now)

    async def close(self) -> None:
        """Finish what is being written, and let the next agent have the directory."""
        await asyncio.gather(*self._running, return_exceptions=True)
        if self._locked is not None:
            await self.run(self._locked.close)
        self._pool.shutdown(wait=False)

    def _open(self) -> str:
        with _disk(self._root):
            for path in (self._root, self._root / "sessions", self._root / "tombstones"):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock()
            shutil.rmtree(self.spool_dir, ignore_errors=True)
            self.spool_dir.mkdir(mode=0o700)
            id_file = self._root / "agent_id"
            if not id_file.exists():
                _write(id_file, str(uuid.uuid4()).encode() + b"\n", 0o600)
            return id_file.read_text("ascii").strip()

    def _lock(self) -> None:
        self._locked = (self._root / "lock").open("wb")
        try:
            fcntl.flock(self._locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._locked.close()
            raise RuntimeError(f"another agent runs on {self._root}") from None

    def _create(self, session: Session) -> None:
        directory = self.directory(session.internal_id)
        with _disk(directory):
            directory.mkdir(mode=0o700, exist_ok=True)
            public = self.public_dir(session.internal_id)
            public.mkdir(exist_ok=True)
            public.chmod(0o755)
            _write(public / "session.json", public_view(session), 0o644, durable=False)
            _write(directory / "record.json", encode_session(session), 0o600)
            _flush_folder(directory.parent)

    def _save(self, session: Session) -> None:
        path = self.directory(session.internal_id) / "record.json"
        with _disk(path):
            _write(path, encode_session(session), 0o600)

    def _publish(self, session: Session) -> None:
        path = self.public_dir(session.internal_id) / "session.json"
        with _disk(path):
            _write(path, public_view(session), 0o644, durable=False)

    def _load(self) -> tuple[list[Session], list[str]]:
        sessions: list[Session] = []
        damaged: list[str] = []
        for directory in (self._root / "sessions").iterdir():
            try:
                session = decode_session((directory / "record.json").read_bytes())
            except (OSError, ValueError, ValidationError) as error:
                log.error("cannot read the record of %s: %s", directory.name, error)  # noqa: TRY400 - the text says it all
                damaged.append(directory.name)
            else:
                sessions.append(session)
        return sorted(sessions, key=lambda session: session.create_time), damaged

    def _tombstone(self, internal_id: str) -> Path:
        return self._root / "tombstones" / internal_id

    def _add_tombstone(self, internal_id: str, now: float) -> None:
        path = self._tombstone(internal_id)
        with _disk(path):
            _write(path, str(now).encode(), 0o600)

    def _load_tombstones(self, now: float) -> dict[str, float]:
        made: dict[str, float] = {}
        for path in (self._root / "tombstones").iterdir():
            with contextlib.suppress(OSError, ValueError):
                made[path.name] = float(path.read_text("ascii"))
            if abs(now - made.get(path.name, now)) >= TOMBSTONE_SECONDS:
                path.unlink(missing_ok=True)
                del made[path.name]
        return made


def _close_late(opening: asyncio.Future[IO[bytes]]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _write(path: Path, data: bytes, mode: int, *, durable: bool = True) -> None:
    beside = path.with_name(f".{path.name}.new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        if durable:
            os.fsync(descriptor)
    beside.replace(path)
    if durable:
        _flush_folder(path.parent)


def _flush_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _disk(contextlib.AbstractContextManager[None]):  # noqa: N801 - reads as a statement
    """Turns the operating system's refusals into DiskFull."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError):
            raise DiskFull(str(self._path), error.strerror or str(error)) from error
