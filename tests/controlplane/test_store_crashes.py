"""The database after a process is killed, or the power is cut, during writes."""

import asyncio
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from controlplane.storage.engine.database import Database
from tests.controlplane.store_writer import KIND
from tests.faults.plugin import Figure, Rounds
from tests.support import power_cut
from tests.support.controlplane.transactions import opened

NAME = "controlplane.db"
TRANSACTIONS = 150  # Enough for the write-ahead log to restart several times
ENDLESS = 10**9


def _writer(path: Path, first: int, last: int, *more: str) -> list[str]:
    module = "tests.controlplane.store_writer"
    return [sys.executable, "-m", module, str(path), str(first), str(last), *more]


def _killed(path: Path, first: int, after: int) -> list[int]:
    """Kill a writer after `after` acknowledgements; return all acknowledged numbers."""
    command = _writer(path, first, ENDLESS)
    with subprocess.Popen(command, env=power_cut.ENVIRONMENT, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(after)]
        writer.kill()
        return acknowledged + [int(line) for line in writer.stdout]


def _logged(library: Path, folder: Path, *more: str) -> list[power_cut.Deed]:
    """All that a writer did, its database's creation included."""
    return power_cut.logged(
        library, folder, _writer(folder / "state" / NAME, 0, TRANSACTIONS, *more)
    )


def _found(path: Path) -> set[int]:
    """Open and check the database as the control plane does; return the numbers in it."""

    def look(db: Database) -> dict[str, int]:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        sql = "SELECT object, count(*) FROM event WHERE kind=:kind GROUP BY object"
        return dict(db.execute(sql, {"kind": KIND}).fetchall())

    async def read() -> dict[str, int]:
        async with opened(path) as store:
            return await store.run(look)

    rows = asyncio.run(read())
    assert set(rows.values()) <= {2}
    return set(map(int, rows))


def _lost(
    deeds: Sequence[power_cut.Deed], at: Iterable[int], survives: power_cut.Survives, folder: Path
) -> Iterator[set[int]]:
    """Numbers acknowledged before a cut at each of these deeds, and missing after it."""
    for number, (acknowledged, files) in enumerate(power_cut.cuts(deeds, at, survives)):
        power_cut.put(files, folder / f"cut-{number}")
        yield set(map(int, acknowledged)) - _found(folder / f"cut-{number}" / NAME)


@pytest.mark.part_alone
@pytest.mark.timeout(600)
def test_f36_what_a_killed_process_acknowledged_is_in_its_database(
    tmp_path: Path, rounds: Rounds, chance: Random, figure: Figure
) -> None:
    path = tmp_path / NAME
    acknowledged = set[int]()
    first = 0
    kills = rounds(3, 100)
    for _ in range(kills):
        acknowledged.update(_killed(path, first, chance.randrange(1, TRANSACTIONS)))
        found = _found(path)
        assert acknowledged <= found, f"lost: {sorted(acknowledged - found)}"
        first = max(found) + 1
    figure("SIGKILLs", kills)
    figure("transactions acknowledged", len(acknowledged))
    figure("lost", 0)


@pytest.mark.part_alone
@pytest.mark.timeout(600)
def test_f36_what_was_acknowledged_before_a_power_cut_is_in_the_database(
    tmp_path: Path, disk_log: Path, rounds: Rounds, chance: Random, figure: Figure
) -> None:
    deeds = _logged(disk_log, tmp_path)
    count = rounds(20, 500)
    done = 0
    for folder, survives in (("none", power_cut.nothing), ("some", power_cut.by(chance))):
        at = chance.sample(range(len(deeds)), count)
        for lost in _lost(deeds, at, survives, tmp_path / folder):
            done += 1
            assert not lost
    figure("power cuts", done)
    figure("transactions lost", 0)


def test_disk_log_has_all_that_was_done(tmp_path: Path, disk_log: Path) -> None:
    deeds = _logged(disk_log, tmp_path)
    deeds.append(deeds[0])
    [(acknowledged, files)] = power_cut.cuts(deeds, [len(deeds) - 1], power_cut.everything)
    assert set(map(int, acknowledged)) == set(range(TRANSACTIONS))
    for name, content in files.items():
        if not name.endswith("-shm"):  # it is memory, and recreated
            assert content == (tmp_path / "state" / name).read_bytes(), name
    assert f"{NAME}-wal" in files


def test_finds_lost_commits_of_a_store_that_syncs_less(tmp_path: Path, disk_log: Path) -> None:
    deeds = _logged(disk_log, tmp_path, "--normal")
    at = [number for number, deed in enumerate(deeds) if deed.name == power_cut.ACKNOWLEDGED]
    assert any(_lost(deeds, at[::10], power_cut.nothing, tmp_path))
