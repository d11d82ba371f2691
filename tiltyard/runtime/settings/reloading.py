"""A settings file read again when the process is told to, such as by SIGHUP.

What is wrong changes nothing: the settings that are there stay until all of the file fits. Askings
that come while one is under way are one more together.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Generic, TypeVar

from tiltyard.runtime.logging.events import Logger
from tiltyard.runtime.settings.mistakes import Mistake, SettingsError

READ_SECONDS = 5.0
"""For the file and all that it names: they may be on a disk that hangs."""

T = TypeVar("T")


class Reloader(Generic[T]):
    """Owns the settings in use and the thread that reads them.

    `values` are the keys of settings, `merged` gives settings with some keys of others, and
    `apply` has the parts of the program take them; a SettingsError of it leaves them as they were.
    Only keys in `reloadable` are taken. `begin` and `end` tell the service manager.
    """

    def __init__(
        self,
        settings: T,
        *,
        load: Callable[[], T],
        values: Callable[[T], Mapping[str, Any]],
        merged: Callable[[T, Mapping[str, Any]], T],
        apply: Callable[[T], None],
        reloadable: frozenset[str],
        begin: Callable[[], None],
        end: Callable[[], None],
        log: Logger,
    ) -> None:
        self.settings = settings
        self._load = load
        self._values = values
        self._merged = merged
        self._apply = apply
        self._reloadable = reloadable
        self._begin = begin
        self._end = end
        self._log = log
        self._asked = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "settings")
        self._reading: asyncio.Future[T] | None = None
        self.warnings: tuple[str, ...] = ()
        """What differs between the file and what is in use."""

    def ask(self) -> None:
        """Have the file read again, soon."""
        self._asked.set()

    async def run(self, serving: asyncio.Event) -> None:
        """Reload whenever that was asked for, for ever, from when the program is serving."""
        await serving.wait()
        while True:
            await self._asked.wait()
            self._asked.clear()
            self._begin()
            try:
                await self.reload()
            finally:
                self._end()

    async def reload(self) -> None:
        """Read the file once, and take of it what can be taken."""
        try:
            self._take(await self._read())
        except SettingsError as error:
            for mistake in error.mistakes:
                self._log.error("settings not taken", error=str(mistake))
            first, *others = error.mistakes
            more = f", and {len(others)} more mistakes" if others else ""
            self.warnings = (f"the settings file was not taken: {first}{more}",)
        except Exception as error:  # noqa: BLE001 - what runs goes on by what it has
            self._log.error("a defect in reloading the settings", exc_info=error)
            self.warnings = (f"the settings file was not taken by a defect: {error!r}",)

    def close(self) -> None:
        """Let the thread end once what it reads has come."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _read(self) -> T:
        if self._reading is not None:  # of an earlier asking, that a disk held up
            await _done(self._reading)
        loop = asyncio.get_running_loop()
        self._reading = loop.run_in_executor(self._thread, self._load)
        self._reading.add_done_callback(_seen)
        await _done(self._reading)
        return self._reading.result()

    def _take(self, found: T) -> None:
        old, new = self._values(self.settings), self._values(found)
        differing = {key for key in new if new[key] != old[key]}
        taken, kept = sorted(differing & self._reloadable), sorted(differing - self._reloadable)
        try:
            merged = self._merged(self.settings, {key: new[key] for key in taken})
        except SettingsError as error:  # the file fits as a whole, but a part of it does not yet
            mistakes = (replace(each, mend="restart for that") for each in error.mistakes)
            raise SettingsError(*mistakes) from error
        self._apply(merged)
        self.settings = merged
        self.warnings = ()
        if kept:
            named = ", ".join(kept)
            self.warnings = (f"changed in the settings file, but needs a restart: {named}",)
            self._log.warning("changed settings need a restart", keys=named)
        self._log.info("settings reloaded", keys=", ".join(taken) or "nothing")


def _seen(reading: asyncio.Future[T]) -> None:
    """Know of its error, also when nobody waits for it any more."""
    if not reading.cancelled():
        reading.exception()


async def _done(reading: asyncio.Future[T]) -> None:
    await asyncio.wait({reading}, timeout=READ_SECONDS)
    if not reading.done():
        told = f"cannot be read within {READ_SECONDS:g} s"
        raise SettingsError(Mistake((), told, "look at its disk"))
