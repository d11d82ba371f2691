"""Reading settings again: all of it or nothing, and once for askings that come together."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.agent.hosts import until
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.settings import reloading
from tiltyard.runtime.settings.mistakes import Mistake, SettingsError
from tiltyard.runtime.settings.reloading import Reloader

Settings = dict[str, Any]
FIRST: Settings = {"soon": 1, "later": 1}
SOON = frozenset({"soon"})


@dataclass
class Program:
    """What a reloader reads for, and what was done with it."""

    found: Settings = field(default_factory=lambda: dict(FIRST))
    error: Exception | None = None
    begun: int = 0
    read: int = 0
    ended: int = 0
    taken: list[Settings] = field(default_factory=list)
    free: threading.Event = field(default_factory=threading.Event)
    """Cleared while the file's disk hangs."""

    def __post_init__(self) -> None:
        self.free.set()
        self.reloader = Reloader(
            FIRST,
            load=self._load,
            values=lambda settings: settings,
            merged=_merged,
            apply=self.taken.append,
            reloadable=SOON,
            begin=self._begin,
            end=self._end,
            log=get_logger("test"),
        )

    def _load(self) -> Settings:
        self.read += 1
        self.free.wait()
        if self.error is not None:
            raise self.error
        return dict(self.found)

    def _begin(self) -> None:
        self.begun += 1

    def _end(self) -> None:
        self.ended += 1

    async def ended_times(self, times: int) -> None:
        await until(lambda: self.ended == times)


def _merged(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    return {**settings, **changes}


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[Program]:
    program, serving = Program(), asyncio.Event()
    serving.set()
    loop = asyncio.create_task(program.reloader.run(serving), name="reloader")
    try:
        yield program
    finally:
        program.free.set()
        program.reloader.close()
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)


async def test_what_can_be_taken_is_and_the_rest_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with running() as program:
        program.found = {"soon": 2, "later": 2}
        program.reloader.ask()
        await program.ended_times(1)
        assert program.taken == [{"soon": 2, "later": 1}]
        assert program.reloader.settings == {"soon": 2, "later": 1}
        assert "changed settings need a restart keys=later" in caplog.text
        assert "settings reloaded keys=soon" in caplog.text
        [warning] = program.reloader.warnings
        assert warning.endswith("needs a restart: later")
        program.found = {"soon": 3, "later": 1}
        program.reloader.ask()
        await program.ended_times(2)
        assert program.reloader.warnings == ()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SettingsError(Mistake(("soon",), "is wrong", "mend it", "f:1")), "f:1: soon: is wrong"),
    ],
)
async def test_what_is_wrong_changes_nothing(
    caplog: pytest.LogCaptureFixture, error: Exception, told: str
) -> None:
    async with running() as program:
        program.found = {"soon": 2, "later": 1}
        program.error = error
        program.reloader.ask()
        await program.ended_times(1)
        assert (program.taken, program.reloader.settings) == ([], FIRST)
        assert f"settings not taken error={told}" in caplog.text
        [warning] = program.reloader.warnings
        assert warning.startswith(f"the settings file was not taken: {told}")
        program.error = None
        program.reloader.ask()
        await program.ended_times(2)
        assert program.taken == [program.found]
        assert program.reloader.warnings == ()


async def test_a_defect_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as program:
        program.error = RuntimeError("ours")
        program.reloader.ask()
        await program.ended_times(1)
        assert program.reloader.warnings[0].endswith("by a defect: RuntimeError('ours')")
        assert "a defect in reloading the settings" in caplog.text
        program.error = None
        program.reloader.ask()
        await program.ended_times(2)
        assert program.reloader.warnings == ()


async def test_askings_that_come_while_one_is_under_way_are_one_more() -> None:
    async with running() as program:
        program.free.clear()
        program.reloader.ask()
        await until(lambda: program.begun == 1)
        for _ in range(100):
            program.reloader.ask()
        program.free.set()
        await program.ended_times(2)
        for _ in range(100):  # nothing more comes of them
            await asyncio.sleep(0)
        assert (program.begun, program.ended, len(program.taken)) == (2, 2, 2)


async def test_a_disk_that_hangs_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "READ_SECONDS", 0.01)
    async with running() as program:
        program.free.clear()
        program.reloader.ask()
        await program.ended_times(1)
        assert "cannot be read within" in program.reloader.warnings[0]
        program.reloader.ask()
        await program.ended_times(2)
        monkeypatch.setattr(reloading, "READ_SECONDS", 10.0)
        program.found = {"soon": 2, "later": 1}
        program.free.set()
        program.reloader.ask()
        await program.ended_times(3)
        assert program.taken == [program.found]
        assert program.read == 2  # askings do not wait in a line meanwhile


async def test_nothing_is_read_before_the_program_serves() -> None:
    program, serving = Program(), asyncio.Event()
    loop = asyncio.create_task(program.reloader.run(serving), name="reloader")
    program.reloader.ask()
    for _ in range(100):
        await asyncio.sleep(0)
    assert program.begun == 0
    serving.set()
    await program.ended_times(1)
    program.reloader.close()
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)


def test_a_wish_that_does_not_fit_what_stays_is_refused() -> None:
    def refused(settings: Settings, changes: Mapping[str, Any]) -> Settings:
        raise SettingsError(Mistake(("soon",), "does not fit what stays"))

    merged: Callable[[Settings, Mapping[str, Any]], Settings] = refused
    program = Program()
    program.reloader._merged = merged
    program.found = {"soon": 2, "later": 1}
    asyncio.run(program.reloader.reload())
    program.reloader.close()
    assert program.taken == []
    assert "does not fit what stays; restart for that" in program.reloader.warnings[0]
