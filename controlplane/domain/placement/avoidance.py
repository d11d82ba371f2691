"""Which hosts are avoided because of failed starts, by application. Pure, time as an argument.

`start_failures` decides for one host; this keeps the answers of many hosts as sets of rows.
"""

import heapq
from collections.abc import Mapping
from itertools import count

from controlplane.domain.placement.row_sets import Rows
from controlplane.domain.placement.start_failures import EVERYONE, Owner


class AvoidedRows:
    """The hosts that are avoided, as sets of rows, and until when."""

    def __init__(self) -> None:
        self._until: dict[int, Mapping[Owner, float]] = {}
        self._rows: dict[Owner, Rows] = {}
        self._due: list[tuple[float, int, int, Owner]] = []
        """A heap of the times at which rows may no longer be avoided.

        An entry has the time, its own number, the row and the owner.
        """
        self._numbers = count()

    def change(self, row: int, until: Mapping[Owner, float]) -> None:
        """Replace the owners that avoid a row, and until when each does."""
        for owner in self._until.pop(row, {}):
            self._leave(row, owner)
        if not until:
            return
        self._until[row] = until
        for owner, time in until.items():
            self._rows[owner] = self._rows.get(owner, 0) | 1 << row
            heapq.heappush(self._due, (time, next(self._numbers), row, owner))

    def avoided_by(self, owner: Owner, now: float) -> Rows:
        """Return the rows that an application avoids now."""
        while self._due and self._due[0][0] <= now:
            _, _, row, due = heapq.heappop(self._due)
            until = self._until.get(row, {}).get(due)
            if until is not None and until <= now:
                self._leave(row, due)
        return self._rows.get(owner, 0) | self._rows.get(EVERYONE, 0)

    def _leave(self, row: int, owner: Owner) -> None:
        left = self._rows.get(owner, 0) & ~(1 << row)
        if left:
            self._rows[owner] = left
        else:
            self._rows.pop(owner, None)
