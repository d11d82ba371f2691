"""A machine's disk keeps what was flushed, and nothing else."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host.disk import Disk

_A = b"a" * 512
_B = b"b" * 512
_C = b"c" * 512


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    path = tmp_path / "disk"
    path.write_bytes(bytes(4096))
    file = os.open(path, os.O_RDWR)
    yield Disk(file)
    os.close(file)


def test_reads_what_was_written_last(disk: Disk) -> None:
    disk.write(512, _A + _B)
    disk.flush()
    disk.write(1024, _C)
    assert disk.read(0, 2048) == bytes(512) + _A + _C + bytes(512)


def test_power_cut_loses_only_what_was_not_flushed(disk: Disk) -> None:
    disk.write(0, _A)
    disk.flush()
    disk.write(0, _B)
    disk.write(512, _B)
    assert disk.cut_power() == 2
    assert disk.read(0, 1024) == _A + bytes(512)


def test_power_cut_keeps_what_was_written_through(disk: Disk) -> None:
    disk.write(0, _A)
    disk.write_through(0, _B)
    disk.write(512, _C)
    assert disk.cut_power() == 1
    assert disk.read(0, 1024) == _B + bytes(512)
