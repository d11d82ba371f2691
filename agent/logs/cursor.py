"""How far a reader has come in a log that it asks for again and again. Pure.

An engine cannot be asked for what comes behind a place, drops its oldest file without notice, and
streams wrongly while it begins a new one (`Engine.logs`). What holds is the order of pieces within
one answer. So a place is a mark, the last piece that ended a line, which no other piece of the log
equals in stream and time, and how many pieces came behind it. An answer that has the mark
continues without a gap; if the mark is missing, lines have been dropped.
"""

from collections.abc import Sequence

from agent.domain.engine import LogPiece

Mark = tuple[int, bytes]
"""Stream and time of a piece."""


class Cursor:
    """A place in a log, and the answer that is being read.

    `read_bytes` counts what was read, in the measure of `LogPiece.size`.
    """

    def __init__(self) -> None:
        self.read_bytes = 0
        self.found = True
        """False while an answer has not come to the place."""
        self._line_end: Mark | None = None
        self._behind = 0
        """Pieces behind `_line_end`, or from the beginning of the log."""
        self._first: Mark | None = None
        self._open: dict[int, bytes] = {}
        """By stream, the time of a line that was begun and not ended."""
        self._cut: dict[int, bytes] = {}
        """Those whose rest is to be left out."""
        self._to_skip = 0
        self._from_first = False
        self._whole = False
        self._landmark: Mark | None = None
        self.over = False
        """True when there is nothing more for this place in an answer."""

    @property
    def has_mark(self) -> bool:
        """True when a part of the log is enough to find the place."""
        return self._line_end is not None

    def seek(self, *, from_first: bool = False, whole: bool = False) -> None:
        """Take what follows for a new answer, and pass over it up to the place.

        With `from_first` an answer that begins elsewhere than the log did is not gone through,
        nor is a `whole` one that begins elsewhere and, by its time, behind the place.
        """
        self._begin_answer()
        self.found = self._first is None  # nothing was read before
        self._to_skip = self._behind
        self._from_first = from_first or not self.has_mark
        self._whole = whole

    def jump(self) -> None:
        """Take what follows for a new answer that lies behind a gap; cut lines stay cut."""
        self._begin_answer()
        self.found = True
        self._cut, self._open = {**self._cut, **self._open}, {}
        self._first = self._line_end = None
        self._behind = 0

    def take(self, pieces: Sequence[LogPiece]) -> list[LogPiece]:
        """Advance to the end of these pieces and return the new ones."""
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

    def _begin_answer(self) -> None:
        self._landmark = None
        self.over = False
        self._to_skip = 0
        self._from_first = self._whole = False

    def _restarts(self, piece: LogPiece, mark: Mark) -> bool:
        """See an answer repeat itself, as when the engine began a new file while it opened them.

        What comes then was in the answer before.
        """
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
        """See at the first piece of a whole answer that the place is not in it.

        To go through all of it first would cost a follower who is late the time to catch up.
        """
        return self._whole and self._line_end is not None and self._line_end[1] < piece.time

    def _step(self, piece: LogPiece, mark: Mark) -> bool:
        """Move the place behind a piece; False when that is of a line which was cut."""
        self._first = self._first or mark
        self.read_bytes += piece.size
        if piece.ends_line:
            self._line_end, self._behind = mark, 0
            self._open.pop(piece.stream, None)
        else:
            self._behind += 1
            self._open[piece.stream] = piece.time
        if self._cut.get(piece.stream) == piece.time:
            return False
        self._cut.pop(piece.stream, None)
        return True
