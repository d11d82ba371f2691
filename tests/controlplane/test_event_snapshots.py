"""A reader that holds a snapshot of the database while others append and follow events."""

import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median

import pytest

from tests.bench.process_use import rss_mb
from tests.controlplane.event_load import Load
from tests.faults.plugin import Figure
from tests.support.harness import ControlPlaneProcess

LEAST = 100  # Tokens of each writer before, during and after the snapshot
LONG = 600.0  # Seconds for which the snapshot is held in the long form
PAUSE = 0.1  # Seconds between two tokens of a writer
SLOWER = 3.0  # The median duration of a call may exceed the one without snapshot by this factor
SLACK = 50.0  # and by these milliseconds
WAL_MB = 64 * 1.048576 + 1  # `journal_size_limit`, and the page that is written next
THREADS = 16  # Of both loads, at least
RECENT_MB = 48  # The newest events that are kept in memory, and caches of the database


def wal_of(control_plane: ControlPlaneProcess) -> Path:
    return control_plane.state_dir / "controlplane.db-wal"


def times_begun(wal: Path) -> int:
    """Return how often the log was begun again, as its header says."""
    with wal.open("rb") as file:
        return int.from_bytes(file.read(16)[12:], "big")


@contextmanager
def snapshot(control_plane: ControlPlaneProcess) -> Iterator[sqlite3.Connection]:
    """Hold a snapshot in a process other than the control plane."""
    path = control_plane.state_dir / "controlplane.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA query_only=ON")
        connection.execute("BEGIN")
        begin = newest(connection)
        yield connection
        assert newest(connection) == begin
        connection.execute("ROLLBACK")
        assert newest(connection) > begin


def newest(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT number FROM event_counter").fetchone()[0])


def medians(load: Load, counts: list[int]) -> float:
    """Return the median duration in ms of the creations since these counts."""
    pairs = zip(load.writers, counts, strict=True)
    return 1000 * median(s for writer, count in pairs for s in writer.seconds[count:])


def write(*loads: Load, seconds: float = 0.0) -> list[float]:
    """Wait until each writer has written LEAST tokens and the time is over.

    Returns for each load the median duration in ms of the last LEAST creations of each writer.
    """
    end = time.monotonic() + seconds
    while True:
        begin = [[len(writer.seconds) for writer in load.writers] for load in loads]
        for load, counts in zip(loads, begin, strict=True):
            for writer, count in zip(load.writers, counts, strict=True):
                writer.wait_until(count + LEAST)
        if time.monotonic() >= end:
            return [medians(load, counts) for load, counts in zip(loads, begin, strict=True)]


@pytest.mark.part_alone
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_f57_long_snapshot_delays_neither_appends_nor_readers_of_events(
    pytestconfig: pytest.Config, figure: Figure
) -> None:
    """Another control plane without a snapshot has the same load, on the same machine."""
    held = LONG if pytestconfig.getoption("long") else 0.0
    with (
        ThreadPoolExecutor(THREADS) as threads,
        ControlPlaneProcess([], {}) as control_plane,
        ControlPlaneProcess([], {}) as other,
    ):
        wal = wal_of(control_plane)
        with Load(control_plane, threads, PAUSE) as load, Load(other, threads, PAUSE) as usual:
            before, _ = write(load, usual)
            memory_before = rss_mb(control_plane.process.pid)
            with snapshot(control_plane):
                # If all of the log is in the database already, the first write begins it again.
                for writer in load.writers:
                    writer.wait_for(2)
                begun = times_begun(wal)
                during, usual_during = write(load, usual, seconds=held)
                assert times_begun(wal) == begun
                grown = wal.stat().st_size / 1e6
            after, usual_after = write(load, usual)
            load.finish()
        memory = rss_mb(control_plane.process.pid) - memory_before
        figure("appends in ms before, during, after", f"{before:.1f}, {during:.1f}, {after:.1f}")
        figure("the same without a snapshot", f"{usual_during:.1f}, {usual_after:.1f}")
        left = wal.stat().st_size / 1e6
        figure("WAL in MB during, after", f"{grown:.1f}, {left:.1f}")
        figure("further memory in MB", f"{memory:.1f}")
        load.check()
        assert during < SLOWER * usual_during + SLACK
        assert after < SLOWER * usual_after + SLACK
        assert times_begun(wal) > begun
        assert left < WAL_MB
        assert memory < RECENT_MB
