"""The number of the newest event, kept outside the database.

Numbers of events are counted in the database. If its files are replaced by an older copy, numbers
would name other events than before. So the newest number is also in a file; a database that has
not come as far is an older one, and begins an epoch.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from controlplane.domain.errors import StoreError
from controlplane.domain.events.positions import Position
from controlplane.state_dir.private_files import read_private, write_private
from controlplane.storage.engine.changes import Change, Topic
from controlplane.storage.engine.event_log import begin_epoch, position
from controlplane.storage.engine.store import Store
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

INTERVAL = 10.0  # Seconds between two writes: a copy that is less old may not be noticed

_MAX_BYTES = 100


class EventMark:
    """Writes the file while events are appended, and compares it with the database."""

    def __init__(self, store: Store, path: Path, clock: Clock) -> None:
        self._store = store
        self._path = path
        self._clock = clock
        self._written: Position | None = None
        self._has_changed = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "event mark")
        store.changes.subscribe({Topic.EVENT}, self._note)

    async def open(self) -> None:
        """Compare the file with the database, which begins an epoch if it is an older one.

        Raises:
            StoreError: The database failed.
        """
        mark = await self._read()
        if mark is not None and mark > await self._store.read(position):
            log.warning("the database is older than the last event: its events get a new epoch")
            await self._store.run(begin_epoch, self._clock.time(), after=mark.epoch)
        await self._write()

    async def run(self) -> None:
        """Write the file until cancelled."""
        while True:
            await self._has_changed.wait()
            self._has_changed.clear()
            await self._write()
            await self._clock.sleep(INTERVAL)

    async def close(self) -> None:
        """Write the file once more, before the database is closed. Idempotent."""
        await self._write()
        self._thread.shutdown(wait=False)

    async def _read(self) -> Position | None:
        try:
            loop = asyncio.get_running_loop()
            text = await loop.run_in_executor(self._thread, read_private, self._path, _MAX_BYTES)
        except OSError as error:
            log.warning("cannot read the number of the last event", error=str(error))
            return None
        line, newline, rest = (text or b"").decode("ascii", "replace").partition("\n")
        return Position.parse(line) if newline and not rest else None

    async def _write(self) -> None:
        try:
            newest = await self._store.read(position)
            if newest == self._written:
                return
            text = f"{newest}\n".encode()
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, write_private, self._path, text)
            self._written = newest
        except (OSError, StoreError) as error:
            log.warning("cannot write the number of the last event", error=str(error))

    def _note(self, _: Change) -> None:
        self._has_changed.set()
