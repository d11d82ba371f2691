"""Sets of numbered rows as integers, and the numbers and keys of rows as such sets. Pure.

Bit n of a `Rows` is set if row n is in the set. A set of 10,000 rows has 1,250 bytes, so that a
union or an intersection takes a fraction of a microsecond, whatever the rows have in common. Each
class here keeps a fact of every row up to date, and returns the rows for which it holds.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from collections.abc import Set as AbstractSet
from itertools import repeat
from operator import contains
from random import Random
from typing import Generic, TypeVar

Rows = int

_DIGITS = bytes.maketrans(bytes((0, 1)), b"01")

_K = TypeVar("_K", bound=Hashable)


def rows_of(numbers: Iterable[int]) -> Rows:
    """Return the set of these rows."""
    bits = bytearray()
    for number in numbers:
        position = number >> 3
        if position >= len(bits):
            bits.extend(bytes(position + 1 - len(bits)))
        bits[position] |= 1 << (number & 7)
    return int.from_bytes(bits, "little")


def numbers_of(rows: Rows) -> list[int]:
    """Return the numbers of these rows, ascending."""
    return [number for number, bit in enumerate(reversed(f"{rows:b}")) if bit == "1"]


def any_of(rows: Rows, random: Random) -> int:
    """Return the number of one of these rows, each with equal probability; there must be one."""
    chosen = random.randrange(rows.bit_count())
    offset = 0
    length = rows.bit_length()
    while length > 1:
        half = length // 2
        lower = rows & ((1 << half) - 1)
        count = lower.bit_count()
        if chosen < count:
            rows = lower
            length = half
        else:
            chosen -= count
            rows >>= half
            offset += half
            length -= half
    return offset


class Numbers:
    """A number from 0 of each row, initially 0: one set of rows for each bit of the numbers."""

    def __init__(self) -> None:
        self._slices: list[Rows] = []

    def change(self, row: int, before: int, after: int) -> None:
        """Replace the number of a row."""
        changed = before ^ after
        while len(self._slices) < changed.bit_length():
            self._slices.append(0)
        bit = 1 << row
        while changed:
            highest = changed.bit_length() - 1
            self._slices[highest] ^= bit
            changed ^= 1 << highest

    def at_least(self, number: int, among: Rows) -> Rows:
        """Return those of some rows with at least this number."""
        if number.bit_length() > len(self._slices):
            return 0
        if number == 0:
            return among
        lowest = (number & -number).bit_length() - 1
        found = among
        for place in range(lowest, len(self._slices)):
            if number >> place & 1:
                found &= self._slices[place]
            else:
                found |= self._slices[place]
        return found & among

    def least(self, among: Rows) -> Rows:
        """Return those of some rows with the least number."""
        for with_bit in reversed(self._slices):
            without = among ^ (among & with_bit)
            if without:
                among = without
        return among

    def greatest(self, among: Rows) -> Rows:
        """Return those of some rows with the greatest number."""
        for with_bit in reversed(self._slices):
            found = among & with_bit
            if found:
                among = found
        return among


class Keys(Generic[_K]):
    """The keys of each row, for the question which rows have a key.

    The set of a key is made when it is asked for, and kept for the `most` keys that were asked for
    last: rows may have many keys that nothing asks for.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._keys: list[AbstractSet[_K]] = []
        self._rows: OrderedDict[_K, Rows] = OrderedDict()

    def replace(self, row: int, keys: AbstractSet[_K]) -> None:
        """Replace the keys of a row."""
        while len(self._keys) <= row:
            self._keys.append(frozenset())
        changed = self._keys[row] ^ keys
        self._keys[row] = keys
        for key in changed:
            self.change(row, key)

    def change(self, row: int, key: _K) -> None:
        """Note that the set of a row has gained or lost a key."""
        if key in self._rows:
            self._rows[key] ^= 1 << row

    def having(self, key: _K) -> Rows:
        """Return the rows that have a key."""
        rows = self._rows.get(key)
        if rows is not None:
            self._rows.move_to_end(key)
            return rows
        held = bytes(map(contains, self._keys, repeat(key)))
        rows = int(b"0" + held.translate(_DIGITS)[::-1], 2)
        self._rows[key] = rows
        if len(self._rows) > self._most:
            self._rows.popitem(last=False)
        return rows


class ReportTimes:
    """The time of the last report of each row. Times must not decrease."""

    def __init__(self) -> None:
        self._times: OrderedDict[int, float] = OrderedDict()  # Of the rows in `_rows`, ascending
        self._old: dict[int, float] = {}
        self._rows: Rows = 0
        self._longest = 0.0  # The longest age for which rows were kept in `_rows`

    def note_report(self, row: int, time: float) -> None:
        """Note the time of a report of a row."""
        if row in self._times:
            self._times.move_to_end(row)
        else:
            self._old.pop(row, None)
            self._rows |= 1 << row
        self._times[row] = time

    def forget(self, row: int) -> None:
        """Forget the reports of a row."""
        if self._times.pop(row, None) is not None:
            self._rows ^= 1 << row
        self._old.pop(row, None)

    def within(self, age: float, now: float) -> Rows:
        """Return the rows that reported at most `age` before `now`."""
        if age > self._longest:
            self._look_again()
        self._longest = age
        passed = []
        for row, time in self._times.items():
            if now - time <= age:
                break
            passed.append(row)
        for row in passed:
            self._old[row] = self._times.pop(row)
        if passed:
            self._rows ^= rows_of(passed)
        return self._rows

    def any_within(self, age: float, now: float, among: Rows) -> bool:
        """Return whether any of some rows reported at most `age` before `now`."""
        times = (self._time_of(row) for row in numbers_of(among))
        return any(now - time <= age for time in times)

    def _time_of(self, row: int) -> float:
        return self._times.get(row, self._old.get(row, float("-inf")))

    def _look_again(self) -> None:
        times = self._old | self._times
        self._old = {}
        self._times = OrderedDict(sorted(times.items(), key=lambda item: item[1]))
        self._rows = rows_of(times)
