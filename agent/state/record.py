"""The agent's state directory.

    <state_dir>/                 0700
      agent_id                   created once
      format                     version of the whole directory, see `state_format`
      drain.json                 the latest drain order
      claims                     sessions that are newer than their record, see `claims_journal`
      lock                       held while an agent runs on this directory
      sessions/<internal id>/    0700
        record.json              the session
        log                      its output, once sealed
        public/                  0755, mounted at /run/tiltyard in the container
          session.json           0644, the game's view of its session
          .init/                 FIFOs to and from its init, see `init.channel`
        stopped-<reason>         empty: the session was stopped while the disk was full
      prepared/<id>/public/      the same of a prepared container, also once a session has taken it
      pools/<pool id>.json       the latest order of each warm pool
      tombstones/<internal id>   stops that arrived before their start, see `tombstones`
      spool/                     artifacts being downloaded
      init/<sha256>              first processes of containers, see `init_programs`

Files are replaced by write, fsync, rename and fsync of the directory: after a power cut a reader
finds the old or the new content. `Records` runs blocking work on its own threads.
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, ParamSpec, Protocol, TypeVar

from pydantic import TypeAdapter

from agent.domain.errors import DiskFullError
from agent.domain.kept.pools import WarmPool
from agent.domain.sessions.session import Drain, Session
from agent.init.channel import FOLDER, make_channel
from agent.state import state_format
from agent.state.claims_journal import ClaimsJournal
from agent.state.encoding import SESSIONS, decode_claims, newest, public_view
from tiltyard.contract import EndReason
from tiltyard.runtime.atomic_file import flush_file, flush_folder, write
from tiltyard.runtime.batches import Batches
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import Threads, contained

log = get_logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound="Closable")

THREADS = 4  # Enough that one slow fsync does not block the others; more do not help a disk
PUBLIC = "public"  # Name of the folder that a container sees
PREPARED = "prepared"  # Name of the folder of prepared containers
CLAIMS = "claims"  # File name of the journal of claims
STOPPED = "stopped-"  # Prefix of a file name that ends in a stop reason

DRAINS = TypeAdapter(Drain)
POOLS = TypeAdapter(WarmPool)


@contextlib.contextmanager
def disk(path: Path) -> Iterator[None]:
    """Translate OSError to DiskFullError."""
    try:
        yield
    except OSError as error:
        raise DiskFullError(str(path), error.strerror or str(error)) from error


class Closable(Protocol):
    """An open file or a wrapper of one."""

    def close(self) -> None:
        """Release it; blocks."""


class Records:
    """The state directory of one agent, an absolute path; writing raises DiskFullError."""

    def __init__(self, state_dir: Path) -> None:
        self._root = state_dir
        self.tombstones_dir = state_dir / "tombstones"
        self.pools_dir = state_dir / "pools"
        self.spool_dir = state_dir / "spool"
        self._threads = Threads(THREADS, "records")
        self._claims = ClaimsJournal(state_dir / CLAIMS, self._threads.run)
        self._published = Batches(self._publish_all, "session.json")
        self._readers: Counter[str] = Counter()
        self.unrecorded: set[str] = set()
        """Internal ids of sessions whose newest change could not be written."""
        self._locked: IO[bytes] | None = None

    def directory(self, internal_id: str) -> Path:
        """The directory of a session."""
        return self._root / "sessions" / internal_id

    def public_dir(self, session: Session) -> Path:
        """The folder that is mounted in the session's container, where that was created."""
        if session.prepared:
            return self._prepared_dir(session.prepared) / PUBLIC
        return self.directory(session.internal_id) / PUBLIC

    def channel(self, session: Session) -> Path:
        """The folder of the FIFOs between the agent and the container's init."""
        return self.public_dir(session) / FOLDER

    def log_path(self, internal_id: str) -> Path:
        """The sealed log."""
        return self.directory(internal_id) / "log"

    @contextlib.contextmanager
    def kept(self, internal_id: str) -> Iterator[None]:
        """Protect an ended session from removal while it is being read."""
        self._readers[internal_id] += 1
        try:
            yield
        finally:
            self._readers[internal_id] -= 1
            self._readers += Counter()  # drops zero counts

    def is_read(self, internal_id: str) -> bool:
        """True while an ended session is being read."""
        return internal_id in self._readers

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking file work on the threads; it completes also if the wait is cancelled."""
        return await self._threads.run(function, *args, **kwargs)

    @contextlib.asynccontextmanager
    async def opened(self, opener: Callable[[], F]) -> AsyncIterator[F]:
        """Open a file on the threads and close it there, also if the wait is cancelled."""
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
        """Create missing files, empty the spool, and return the agent's id.

        Raises RuntimeError if another agent runs on this directory, or a newer version did.
        """
        return await self.run(self._open)

    async def write(self, path: Path, data: bytes) -> None:
        """Replace a file durably."""
        await self.run(_write, path, data)

    async def remove(self, paths: Iterable[Path]) -> None:
        """Remove files, ignoring errors."""
        await self.run(_remove, list(paths))

    async def create(self, session: Session, drain: Drain) -> None:
        """Create a session's directory and first record, durable after `flush`."""
        await self.run(self._create, session, drain)

    async def create_durably(self, session: Session, drain: Drain) -> None:
        """Create the directory of a session in a prepared container, and record it in the journal.

        The record is durable then; the directory is once the next change was saved.
        """
        made, recorded = await asyncio.gather(
            self.run(self._create_directory, session, drain),
            self.save_claim(session),
            return_exceptions=True,  # an undo must not begin while the other one runs
        )
        for error in (made, recorded):
            if error is not None:
                raise error

    async def prepare(self, template: Session) -> None:
        """Create the folders of a prepared container.

        A power cut may take away their content, but not that of a session which has a record.
        """
        await self.run(self._prepare, template)

    async def drop_prepared(self, prepared_id: str) -> None:
        """Remove the folders of a prepared container, ignoring errors."""
        await self.run(shutil.rmtree, self._prepared_dir(prepared_id), ignore_errors=True)

    async def prepared_ids(self) -> list[str]:
        """Ids of the prepared containers that have folders, also of those that sessions have."""
        return await self.run(_names, self._root / PREPARED)

    async def repair_channel(self, session: Session) -> None:
        """Create the parts of a session's channel that are missing, as after a power cut.

        Best effort: without them the container cannot be started or handed its program.
        """
        with contextlib.suppress(DiskFullError):
            await self.run(self._make_public, session)

    async def flush(self, internal_id: str) -> None:
        """Make a session's record and directory durable."""
        await self.run(self._flush, self.directory(internal_id))

    async def save(self, session: Session) -> None:
        """Replace a session's record; its directory is created if it has none yet."""
        self.unrecorded.add(session.internal_id)
        await self.run(self._save, session.internal_id, SESSIONS.dump_json(session))
        self.unrecorded.discard(session.internal_id)
        self._claims.drop(session.internal_id)

    async def save_claim(self, session: Session) -> None:
        """Record a claim durably; the next `save` replaces the session's record."""
        with disk(self._root / CLAIMS):
            await self._claims.append(session.internal_id, SESSIONS.dump_json(session))

    async def mark_stop(self, session: Session) -> None:
        """Mark a session as stopped, if it was, by an empty file, which fits on a full disk."""
        if session.stop_reason is not None:
            name = f"{STOPPED}{session.stop_reason.value}"
            with contextlib.suppress(OSError):
                await self.run((self.directory(session.internal_id) / name).touch)

    async def publish(self, session: Session, drain: Drain) -> None:
        """Write session.json if it differs; unflushed, since no game survives a power cut."""
        error = await self._published.add((session, drain))
        if error is not None:
            raise error

    async def drop_log(self, internal_id: str) -> None:
        """Remove a sealed log, if any."""
        path = self.log_path(internal_id)
        with disk(path):
            await self.run(path.unlink, missing_ok=True)

    async def delete(self, session: Session) -> None:
        """Remove a session's directory and that of its container, ignoring errors."""
        self.unrecorded.discard(session.internal_id)
        self._claims.drop(session.internal_id)
        await self.run(self._delete, session)

    async def delete_old(self, internal_ids: list[str], before: float) -> list[str]:
        """Remove directories unmodified since the Unix time `before`; returns the others."""
        return await self.run(self._delete_old, internal_ids, before)

    async def load(self) -> tuple[list[Session], list[str]]:
        """All sessions on disk by creation, and the ids of unreadable directories."""
        return await self.run(self._load)

    async def save_drain(self, drain: Drain) -> None:
        """Save the drain order."""
        await self.write(self._root / "drain.json", DRAINS.dump_json(drain))

    async def load_drain(self) -> Drain:
        """The latest drain order; `Drain()` if there is none or it cannot be read."""
        return await self.run(_read, self._root / "drain.json", DRAINS) or Drain()

    async def save_pool(self, pool: WarmPool) -> None:
        """Save the order of a warm pool."""
        await self.write(self.pools_dir / f"{pool.pool}.json", POOLS.dump_json(pool))

    async def remove_pool(self, pool: str) -> None:
        """Remove a warm pool's file; a later removal retries a failed one."""
        await self.remove([self.pools_dir / f"{pool}.json"])

    async def load_pools(self) -> dict[str, WarmPool]:
        """Orders of all warm pools, without unreadable ones."""
        return await self.run(_read_pools, self.pools_dir)

    async def close(self) -> None:
        """Finish writes in progress and release the lock."""
        await self._claims.finish()
        await self._published.finish()
        await self._threads.finish()
        if self._locked is not None:
            await self.run(self._locked.close)
        await self._threads.close()

    def _open(self) -> str:
        with disk(self._root):
            folders = (
                self._root / "sessions",
                self._root / PREPARED,
                self.tombstones_dir,
                self.pools_dir,
            )
            for path in (self._root, *folders, self.spool_dir):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock()
            state_format.check(self._root)
            state_format.mark(self._root)
            for path in (self._root, self._root / PREPARED):
                flush_folder(path)  # what an earlier version has made
            _remove(self.spool_dir.iterdir())  # a full disk could not recreate the folder
            id_file = self._root / "agent_id"
            if not id_file.exists():
                write(id_file, str(uuid.uuid4()).encode() + b"\n", 0o600)
            return id_file.read_text("ascii").strip()

    def _lock(self) -> None:
        # Read-only, so that the disk can be remounted read-only.
        flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC
        self._locked = os.fdopen(os.open(self._root / "lock", flags, 0o600), "rb")
        try:
            fcntl.flock(self._locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._locked.close()
            raise RuntimeError(f"another agent runs on {self._root}") from None

    def _create(self, session: Session, drain: Drain) -> None:
        self._create_directory(session, drain)
        path = self.directory(session.internal_id) / "record.json"
        with disk(path):
            write(path, SESSIONS.dump_json(session), 0o600, durable=False)

    def _create_directory(self, session: Session, drain: Drain) -> None:
        directory = self.directory(session.internal_id)
        with disk(directory):
            directory.mkdir(mode=0o700, exist_ok=True)
            # That of a prepared container is there, or the container cannot be handed a program.
            public = self.public_dir(session) if session.prepared else self._make_public(session)
            write(public / "session.json", public_view(session, drain), 0o644, durable=False)

    def _prepare(self, template: Session) -> None:
        public = self._make_public(template)
        with disk(public):
            flush_folder(self._root / PREPARED)  # see `_journalled`

    def _save(self, internal_id: str, data: bytes) -> None:
        path = self.directory(internal_id) / "record.json"
        if not path.exists():  # its directory may be missing, too, or not be durable
            with disk(path):
                path.parent.mkdir(mode=0o700, exist_ok=True)
                flush_folder(self._root / "sessions")
        _write(path, data)

    def _make_public(self, session: Session) -> Path:
        """Create what is missing of the folder that a container sees, and of its channel."""
        public = self.public_dir(session)
        with disk(public):
            public.mkdir(parents=True, exist_ok=True)
            public.chmod(0o755)
            make_channel(self.channel(session))
        return public

    def _delete(self, session: Session) -> None:
        if session.prepared:  # first, so that no line of the journal counts without the record
            shutil.rmtree(self._prepared_dir(session.prepared), ignore_errors=True)
        shutil.rmtree(self.directory(session.internal_id), ignore_errors=True)

    def _prepared_dir(self, prepared_id: str) -> Path:
        return self._root / PREPARED / prepared_id

    def _flush(self, directory: Path) -> None:
        with disk(directory):
            flush_file(directory / "record.json")
            flush_folder(directory)
            flush_folder(directory.parent)

    async def _publish_all(self, batch: list[tuple[Session, Drain]]) -> list[Exception | None]:
        return await self.run(self._publish, batch)

    def _publish(self, batch: list[tuple[Session, Drain]]) -> list[Exception | None]:
        return [self._publish_one(session, drain) for session, drain in batch]

    def _publish_one(self, session: Session, drain: Drain) -> Exception | None:
        """Return the error of one session, which must not fail the others of a batch."""
        path = self.public_dir(session) / "session.json"
        try:
            with disk(path):
                view = public_view(session, drain)
                if not path.exists() or path.read_bytes() != view:
                    write(path, view, 0o644, durable=False)
        except Exception as error:  # noqa: BLE001 - its session's task raises it
            return error
        return None

    def _load(self) -> tuple[list[Session], list[str]]:
        sessions: list[Session] = []
        damaged: list[str] = []
        claimed = _journalled(self._root)
        begun = [internal_id for internal_id, each in claimed.items() if each.claim is None]
        counting: dict[str, bytes] = {}
        _remove((self._root / PREPARED).glob(f"*/{PUBLIC}/.*.new"))
        for internal_id in sorted({*_names(self._root / "sessions"), *begun}):
            directory = self.directory(internal_id)
            loaded = None
            claim = claimed.get(internal_id)
            if internal_id in begun:
                with contextlib.suppress(OSError):  # the disk is full
                    directory.mkdir(mode=0o700, exist_ok=True)  # a power cut may have taken it
            with contained("cannot load a session: internal error", session=directory.name):
                loaded = _load_one(directory, claim)
            if claim is not None and loaded in (None, claim):
                counting[directory.name] = SESSIONS.dump_json(claim)
            if loaded is None:
                damaged.append(directory.name)
            else:
                sessions.append(_as_stopped(directory, loaded))
        self._claims.rewrite(counting)
        return sorted(sessions, key=lambda session: session.create_time), damaged

    def _delete_old(self, internal_ids: list[str], before: float) -> list[str]:
        young = []
        for internal_id in internal_ids:
            directory = self.directory(internal_id)
            try:
                if directory.stat().st_mtime >= before:
                    young.append(internal_id)
                    continue
            except FileNotFoundError:
                continue
            log.warning("removed a session without a readable record", path=str(directory))
            shutil.rmtree(directory, ignore_errors=True)
        return young


def _journalled(state_dir: Path) -> dict[str, Session]:
    """Read the sessions of the journal whose lines count, unless a claim's record is newer.

    That of a start in a prepared container counts until there is a record. If the folder of the
    container is gone, the start was undone, or its session deleted.
    """
    path = state_dir / CLAIMS
    found = decode_claims(path.read_bytes() if path.exists() else b"")
    return {
        internal_id: session
        for internal_id, session in found.items()
        if session.claim is not None or _is_first_record(state_dir, session)
    }


def _is_first_record(state_dir: Path, session: Session) -> bool:
    has_record = (state_dir / "sessions" / session.internal_id / "record.json").exists()
    return (state_dir / PREPARED / session.prepared).is_dir() and not has_record


def _write(path: Path, data: bytes) -> None:
    with disk(path):
        write(path, data, 0o600)


def _load_one(directory: Path, claim: Session | None) -> Session | None:
    """Read a session; None without a readable record. `claim`: the one in the journal."""
    # Temporary files of a killed agent.
    _remove([*directory.glob(".*.new"), *directory.glob("public/.*.new")])
    return newest(_read(directory / "record.json", SESSIONS), claim)


def _as_stopped(directory: Path, session: Session) -> Session:
    """Apply the mark of a stop that a full disk kept out of the record."""
    for path in directory.glob(f"{STOPPED}*"):
        with contextlib.suppress(ValueError):  # not a mark of the agent
            reason = EndReason(path.name.removeprefix(STOPPED))
            session = session.with_changes(stop_reason=session.stop_reason or reason)
    return session


def _read(path: Path, adapter: TypeAdapter[T]) -> T | None:
    """Read a JSON file; None if it is missing or unreadable."""
    try:
        return adapter.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.error("cannot read a file of the state", path=str(path), error=str(error))  # noqa: TRY400 - the text says it all
        return None


def _read_pools(folder: Path) -> dict[str, WarmPool]:
    found = [_read(path, POOLS) for path in folder.glob("*.json")]
    return {pool.pool: pool for pool in found if pool is not None}


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return sorted(path.name for path in folder.iterdir())
    return []


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()


def _close_late(opening: asyncio.Future[F]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
