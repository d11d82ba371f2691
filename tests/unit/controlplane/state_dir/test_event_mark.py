"""A database that is older than its last event begins an epoch."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from controlplane.domain.access.audit import ITSELF
from controlplane.domain.events.fleet import RegionCreated
from controlplane.domain.events.positions import Position
from controlplane.state_dir.event_mark import EventMark
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.event_log import begin_epoch, position
from controlplane.storage.engine.store import Store
from tests.support.controlplane.system import eventually
from tests.support.fake_clock import FakeClock

NOW = 1000.0


def append(db: Database, count: int) -> None:
    for number in range(count):
        db.append(RegionCreated("", str(number), ITSELF, NOW))


def mark_of(folder: Path, text: str | None) -> Path:
    """Write the file of a mark, unless it is missing."""
    path = folder / "mark"
    if text is not None:
        path.write_text(text)
    return path


async def opened_beside(store: Store, path: Path) -> Position:
    """Open the mark beside a file; return the position of the database after it."""
    mark = EventMark(store, path, FakeClock(NOW))
    await mark.open()
    await mark.close()
    return await store.read(position)


@pytest.mark.parametrize("text", [None, "1-2\n", "1-3\n", "", "damaged", "1-99", "-1-99\n"])
async def test_database_that_has_come_as_far_keeps_its_epoch(
    store: Store, tmp_path: Path, text: str | None
) -> None:
    await store.run(append, 3)
    assert await opened_beside(store, mark_of(tmp_path, text)) == (1, 3)
    assert (tmp_path / "mark").read_text() == "1-3\n"


@pytest.mark.parametrize(
    ("text", "epoch"),
    [
        ("1-4\n", 1000),
        ("2-1\n", 1000),
        ("5000-1\n", 5001),
    ],
)
async def test_older_database_begins_an_epoch_that_was_not_used(
    store: Store, tmp_path: Path, text: str, epoch: int
) -> None:
    await store.run(append, 3)
    assert await opened_beside(store, mark_of(tmp_path, text)) == (epoch, 3)
    assert (tmp_path / "mark").read_text() == f"{epoch}-3\n"


async def test_restored_database_keeps_the_epoch_of_its_restore(
    store: Store, tmp_path: Path
) -> None:
    await store.run(append, 3)
    await store.run(begin_epoch, NOW)
    assert await opened_beside(store, mark_of(tmp_path, "1-99\n")) == (1000, 3)


async def test_events_are_marked_while_they_are_appended(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "mark"
    clock = FakeClock(NOW)
    mark = EventMark(store, path, clock)
    await mark.open()
    run = asyncio.create_task(mark.run())
    await store.run(append, 1)
    await eventually(lambda: path.read_text() == "1-1\n")
    await store.run(append, 1)
    assert path.read_text() == "1-1\n", "not with each commit"
    run.cancel()
    with suppress(asyncio.CancelledError):
        await run
    await mark.close()
    assert path.read_text() == "1-2\n"


async def test_file_that_cannot_be_written_is_logged(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mark").mkdir()
    mark = EventMark(store, tmp_path / "mark", FakeClock(NOW))
    await mark.open()
    await mark.close()
    assert "cannot read the number of the last event" in caplog.text
    assert "cannot write the number of the last event" in caplog.text
