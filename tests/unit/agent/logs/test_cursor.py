import gc
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import FrameType

from hypothesis import given
from hypothesis import strategies as st

from agent.domain.containers.engine import LogPiece
from agent.logs.cursor import Cursor


def a_line(
    number: int, *, stream: int = 1, pieces: int = 1, time: int | None = None
) -> list[LogPiece]:
    """A line of `pieces` pieces, each with the number of the line and of the piece."""
    mark = b"%d" % (number if time is None else time)
    return [
        LogPiece(stream, mark, b"%d.%d" % (number, i), i == 0, i == pieces - 1)
        for i in range(pieces)
    ]


def lines(*numbers: int) -> list[LogPiece]:
    return [piece for number in numbers for piece in a_line(number)]


def a_cursor(log: Sequence[LogPiece]) -> Cursor:
    """A cursor that has read these pieces."""
    cursor = Cursor()
    cursor.seek()
    assert cursor.take(log) == list(log)
    return cursor


def test_after_a_gap_only_the_rest_of_a_cut_line_is_skipped() -> None:
    begun = a_line(2, pieces=9)
    cursor = a_cursor([*lines(1), *begun[:3]])
    cursor.seek()
    assert cursor.take(begun[6:] + lines(3)) == []
    assert cursor.found is False
    cursor.jump()
    assert cursor.take(begun[6:] + lines(3)) == lines(3)
    cursor.seek()
    assert cursor.take(lines(3, 4)) == lines(4)


def test_new_lines_take_at_most_one_python_call_each() -> None:
    cursor = a_cursor(lines(0))
    log = lines(*range(1, 1001))
    calls = 0
    cursor.seek()
    cursor.take(lines(0))

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    gc.disable()  # finalizers of other tests are calls, too
    sys.setprofile(count)
    try:
        taken = cursor.take(log)
    finally:
        sys.setprofile(None)
        gc.enable()
    assert taken == log
    assert calls <= len(log) + 10
    cursor.seek()
    assert cursor.take(lines(0, 1000, 1001)) == lines(1001)


def test_finds_position_in_first_unfinished_line() -> None:
    line = a_line(1, pieces=5)
    cursor = a_cursor(line[:2])
    assert not cursor.has_mark
    cursor.seek()
    assert cursor.take(line) == line[2:]
    cursor = a_cursor(line[:2])
    cursor.seek()
    assert cursor.take(lines(7)) == []
    assert cursor.found is False


def test_gives_up_on_stream_that_does_not_begin_with_the_log() -> None:
    cursor = a_cursor(lines(1, 2))
    cursor.seek(from_first=True)
    assert cursor.take(lines(3, 4)) == []
    assert cursor.over is True
    cursor.seek(from_first=True)
    assert cursor.take(lines(1, 2, 3)) == lines(3)


def test_gives_up_on_whole_log_that_begins_after_the_position() -> None:
    cursor = a_cursor(lines(1, 2))
    cursor.seek(whole=True)
    assert cursor.take(lines(3)) == []
    assert cursor.over is True
    cursor.seek(whole=True)
    assert cursor.take(lines(0, 2, 3)) == lines(3)  # the clock was set back
    cursor.seek(whole=True)
    assert cursor.take(lines(1, 2, 3, 4)) == lines(4)


def test_result_does_not_depend_on_chunks() -> None:
    answer = [*lines(1, 2, 3), *a_line(4, stream=2, pieces=3), *lines(5, 6), *lines(1, 2, 7)]
    for width in range(1, len(answer) + 1):
        cursor = a_cursor(lines(1, 2))
        cursor.seek()
        parts = [answer[begin : begin + width] for begin in range(0, len(answer), width)]
        assert [piece for part in parts for piece in cursor.take(part)] == answer[2:8]
        assert cursor.over
        assert cursor.read_bytes == sum(piece.size for piece in answer[:8])
        cursor.seek()
        assert cursor.take(lines(6, 8)) == lines(8)


@dataclass
class Log:
    """An engine's log and a reader of it, modelled on `Follower`."""

    kept: list[LogPiece] = field(default_factory=list)
    every: list[LogPiece] = field(default_factory=list)
    taken: list[LogPiece] = field(default_factory=list)
    gaps: int = 0
    lost: bool = False
    cursor: Cursor = field(default_factory=Cursor)
    width: int = 1  # Pieces per chunk

    def write(self, pieces: Sequence[LogPiece]) -> None:
        self.kept += pieces
        self.every += pieces

    def drop(self, count: int) -> None:
        if not self.taken:  # output dropped before the first read is unknown
            del self.every[:count]
        taken = set(self.taken)
        self.lost |= bool(taken) and not taken.issuperset(self.kept[:count])
        del self.kept[:count]

    def read(self, tail: int) -> None:
        for answer in [self.kept[-tail:], self.kept] if self.cursor.has_mark else [self.kept]:
            self.cursor.seek()
            self._take(answer)
            if self.cursor.found:
                return
        self.gaps += 1
        self.cursor.jump()
        self._take(self.kept)

    def _take(self, answer: Sequence[LogPiece]) -> None:
        for begin in range(0, len(answer), self.width):
            self.taken += self.cursor.take(answer[begin : begin + self.width])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 2), st.integers(1, 4)),
        st.tuples(st.just("drop"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("read"), st.integers(1, 6), st.just(0)),
    ),
    max_size=30,
)


@given(STEPS, st.permutations(range(40)), st.integers(1, 4))
def test_every_piece_once_and_in_order_or_a_gap(
    steps: list[tuple[str, int, int]], times: list[int], width: int
) -> None:
    """Also if the wall clock jumps: times identify lines but do not order them."""
    log = Log(width=width)
    unfinished = dict[int, list[LogPiece]]()
    for number, (what, first, second) in enumerate([*steps, ("read", 1, 0)]):
        if what == "write":
            # A long line may be interleaved with the other stream.
            rest = unfinished.pop(first, [])
            line = rest or a_line(number, stream=first, pieces=second, time=times[number])
            log.write(line[:2])
            if line[2:]:
                unfinished[first] = line[2:]
        elif what == "drop":
            if log.cursor.has_mark or not log.taken:  # see `Follower._tails`
                log.drop(first)
        else:
            log.read(first)
    order = [log.every.index(piece) for piece in log.taken]
    assert order == sorted(set(order))
    if not log.gaps:
        assert log.taken == log.every
    if log.lost:
        assert log.gaps
