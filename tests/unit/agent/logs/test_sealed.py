import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.domain.containers.engine import LogPiece
from agent.logs.sealed import DROPPED, SealedLog

KEPT = 2**20


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def log(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SealedLog]:
    monkeypatch.setattr("agent.logs.sealed.LOG_BYTES", KEPT)
    made = SealedLog(place)
    yield made
    made.close()


def numbered(count: int, size: int = 100) -> list[LogPiece]:
    """Lines of `size` bytes."""
    return [
        LogPiece(1 + number % 2, b"%d" % number, (b"%08d" % number).ljust(size - 1) + b"\n")
        for number in range(count)
    ]


def fill(log: SealedLog, pieces: list[LogPiece]) -> None:
    for begin in range(0, len(pieces), 100):
        log.add(pieces[begin : begin + 100])


def test_a_log_within_the_bound_is_kept_byte_for_byte(log: SealedLog, place: Path) -> None:
    pieces = numbered(KEPT // 132)
    fill(log, pieces)
    assert not place.exists()
    log.finish()
    assert place.read_bytes() == b"".join(piece.data for piece in pieces)


@pytest.mark.parametrize("times", [1.01, 1.5, 4])
def test_keeps_newest_whole_lines_of_longer_log(log: SealedLog, place: Path, times: float) -> None:
    pieces = numbered(round(times * KEPT / 132))
    fill(log, pieces)
    log.finish()
    first, *rest = place.read_bytes().splitlines(keepends=True)
    assert rest == [piece.data for piece in pieces[-len(rest) :]]
    found = re.fullmatch(rb"\[tiltyard: .* dropped, (\d+) bytes or more\]\n", first)
    assert found
    assert int(found[1]) == sum(len(piece.data) for piece in pieces[: -len(rest)])
    assert 0.65 * KEPT <= place.stat().st_size <= KEPT


def test_cuts_endless_line_anywhere(log: SealedLog, place: Path) -> None:
    fill(log, [LogPiece(1, b"1", b"x" * 16384, i == 0, ends_line=False) for i in range(200)])
    log.finish()
    first, rest = place.read_bytes().split(b"\n", 1)
    assert first + b"\n" == DROPPED % (200 * 16384 - len(rest))
    assert set(rest) == set(b"x")
    assert len(rest) <= KEPT


@pytest.mark.parametrize(
    "begin",
    [
        lambda log: log.add(numbered(9)),
        lambda _: None,
    ],
)
def test_unfinished_log_leaves_nothing(
    log: SealedLog, place: Path, begin: Callable[[SealedLog], None]
) -> None:
    begin(log)
    log.close()
    assert list(place.parent.iterdir()) == []
    with pytest.raises(ValueError, match="closed"):
        log.add(numbered(1))
    assert list(place.parent.iterdir()) == []
