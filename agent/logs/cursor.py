"""A position in a log that is requested repeatedly. Pure.

An engine cannot resume at a position, drops its oldest file without notice, and streams wrongly
while it rotates files (`Engine.logs`). Only the order of pieces within one answer is reliable. So
a position is a mark, the last piece that ended a line, unique by stream and time, and the number
of pieces after it. An answer that has the mark continues without a gap; if the mark is missing,
lines have been dropped.
"""

from collections.abc import Sequence
from operator import attrgetter

from agent.domain.containers.engine import LogPiece

Mark = tuple[int, bytes]  # Stream and time of a piece

_mark_of = attrgetter("stream", "time")
_is_line = attrgetter("begins_line", "ends_line")
_size_of = attrgetter("size")


class Cursor:
    """A position in a log and the current answer. `read_bytes`: the sum of `LogPiece.size`."""

    def __init__(self) -> None:
        self.read_bytes = 0
        self.found = True  # False until the answer reaches the position
        self._line_end: Mark | None = None
        self._behind = 0  # Pieces after `_line_end`, or since the beginning of the log
        self._first: Mark | None = None
        self._open: dict[int, bytes] = {}  # Times of unfinished lines, by stream
        self._cut: dict[int, bytes] = {}  # Unfinished lines whose rest must be skipped
        self._to_skip = 0
        self._from_first = False
        self._whole = False
        self._landmark: Mark | None = None
        self.over = False  # True if the answer has nothing more for this position

    @property
    def has_mark(self) -> bool:
        """True if a part of the log is enough to find the position."""
        return self._line_end is not None

    def seek(self, *, from_first: bool = False, whole: bool = False) -> None:
        """Start a new answer and skip to the position.

        `from_first`: give up on an answer that does not begin where the log began. `whole`: give
        up on one that, by its time, begins after the position.
        """
        self._begin_answer()
        self.found = self._first is None  # nothing was read before
        self._to_skip = self._behind
        self._from_first = from_first or not self.has_mark
        self._whole = whole

    def jump(self) -> None:
        """Start a new answer after a gap; the rest of unfinished lines is skipped."""
        self._begin_answer()
        self.found = True
        self._cut = {**self._cut, **self._open}
        self._open = {}
        self._first = self._line_end = None
        self._behind = 0

    def take(self, pieces: Sequence[LogPiece]) -> Sequence[LogPiece]:
        """Advance to the end of these pieces and return the new ones."""
        if self._takes_all(pieces):
            return pieces
        new = []
        for piece in pieces:
            mark = piece.stream, piece.time
            if self._restarts(piece, mark):
                break
            if not self.found:
                self._pass_over(piece, mark)
                if self.over:
                    break
            elif self._to_skip:
                self._to_skip -= 1
            elif self._step(piece, mark):
                new.append(piece)
        return new

    def _takes_all(self, pieces: Sequence[LogPiece]) -> bool:
        """Advance past new lines together, at half the cost; False if there are other pieces."""
        if self._landmark is None or self.over or not self.found:
            return False
        if self._to_skip or self._cut or self._open:
            return False
        marks = list(map(_mark_of, pieces))
        if self._landmark in marks or set(map(_is_line, pieces)) != {(True, True)}:
            return False
        self.read_bytes += sum(map(_size_of, pieces))
        self._line_end = marks[-1]
        self._behind = 0
        return True

    def _begin_answer(self) -> None:
        self._landmark = None
        self.over = False
        self._to_skip = 0
        self._from_first = self._whole = False

    def _restarts(self, piece: LogPiece, mark: Mark) -> bool:
        """Detect an answer that repeats itself, as when files were rotated while it began."""
        if piece.ends_line:
            self.over = self.over or mark == self._landmark
            self._landmark = self._landmark or mark
        return self.over

    def _pass_over(self, piece: LogPiece, mark: Mark) -> None:
        if mark != self._first and (self._from_first or self._lies_before(piece)):
            self.over = True
        elif not self.has_mark:
            self.found = True
            self._to_skip -= 1
        else:
            self.found = piece.ends_line and mark == self._line_end
        self._from_first = self._whole = False

    def _lies_before(self, piece: LogPiece) -> bool:
        """Return whether a whole answer begins after the position, which saves reading it."""
        return self._whole and self._line_end is not None and self._line_end[1] < piece.time

    def _step(self, piece: LogPiece, mark: Mark) -> bool:
        """Move past a piece; False if it belongs to a cut line."""
        self._first = self._first or mark
        self.read_bytes += piece.size
        if piece.ends_line:
            self._line_end = mark
            self._behind = 0
            self._open.pop(piece.stream, None)
        else:
            self._behind += 1
            self._open[piece.stream] = piece.time
        if self._cut.get(piece.stream) == piece.time:
            return False
        self._cut.pop(piece.stream, None)
        return True
