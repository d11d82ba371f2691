"""Sets of rows against Python's sets, with more rows than an integer of the machine has bits."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.placement.row_sets import (
    Keys,
    Numbers,
    ReportTimes,
    any_of,
    numbers_of,
    rows_of,
)

ROWS = 200
row_numbers = st.sets(st.integers(0, ROWS - 1))
large = st.integers(0, 2**40)
by_row = st.dictionaries(st.integers(0, ROWS - 1), large | st.integers(0, 3), min_size=1)


def numbers_by(found: dict[int, int]) -> Numbers:
    numbers = Numbers()
    for row, number in found.items():
        numbers.change(row, 0, number)
    return numbers


@given(row_numbers)
def test_rows_are_those_of_their_numbers(rows: set[int]) -> None:
    assert numbers_of(rows_of(rows)) == sorted(rows)


@given(by_row, large | st.integers(0, 3))
def test_rows_with_at_least_a_number(found: dict[int, int], number: int) -> None:
    among = rows_of(list(found)[::2])
    expected = {row for row in list(found)[::2] if found[row] >= number}
    assert set(numbers_of(numbers_by(found).at_least(number, among))) == expected


@given(by_row)
def test_rows_with_the_least_and_the_greatest_number(found: dict[int, int]) -> None:
    chosen = list(found)[::2]
    numbers = numbers_by(found)
    least = min(found[row] for row in chosen)
    greatest = max(found[row] for row in chosen)
    among = rows_of(chosen)
    assert numbers_of(numbers.least(among)) == sorted(r for r in chosen if found[r] == least)
    assert numbers_of(numbers.greatest(among)) == sorted(r for r in chosen if found[r] == greatest)


@given(by_row, by_row)
def test_numbers_can_be_replaced(before: dict[int, int], after: dict[int, int]) -> None:
    numbers = numbers_by(before)
    for row, number in after.items():
        numbers.change(row, before.get(row, 0), number)
    now = before | after
    greatest = max(now.values())
    found = numbers_of(numbers.greatest(rows_of(now)))
    assert found == sorted(row for row in now if now[row] == greatest)


@pytest.mark.parametrize(
    "rows",
    [
        {0},
        {ROWS},
        {0, 63, 64, ROWS},
        set(range(50)),
    ],
)
def test_each_row_is_chosen_equally_often(rows: set[int]) -> None:
    random = Random(1)
    chosen = Counter(any_of(rows_of(rows), random) for _ in range(100 * len(rows)))
    assert set(chosen) == rows
    assert min(chosen.values()) > 50


def test_rows_that_have_a_key() -> None:
    keys = Keys[str](most=2)
    keys.replace(0, frozenset("ab"))
    keys.replace(70, frozenset("b"))
    assert numbers_of(keys.having("b")) == [0, 70]
    keys.replace(0, frozenset("a"))
    keys.replace(71, frozenset("b"))
    assert numbers_of(keys.having("b")) == [70, 71]
    assert numbers_of(keys.having("a")) == [0]
    assert numbers_of(keys.having("c")) == []


def test_key_that_was_forgotten_is_read_from_the_rows_again() -> None:
    keys = Keys[str](most=1)
    held = {"a"}
    keys.replace(3, held)
    assert numbers_of(keys.having("a")) == [3]
    assert numbers_of(keys.having("b")) == []
    held.add("b")
    keys.change(3, "b")
    held.remove("a")
    keys.change(3, "a")
    assert numbers_of(keys.having("a")) == []
    assert numbers_of(keys.having("b")) == [3]


def test_rows_that_reported_within_an_age() -> None:
    recent = ReportTimes()
    recent.note_report(0, 0.0)
    recent.note_report(1, 1.0)
    assert numbers_of(recent.within(2.0, 2.0)) == [0, 1]
    assert numbers_of(recent.within(2.0, 2.5)) == [1]
    recent.note_report(0, 2.5)
    assert numbers_of(recent.within(2.0, 3.0)) == [0, 1]
    recent.forget(1)
    assert numbers_of(recent.within(2.0, 3.0)) == [0]


def test_rows_that_reported_within_a_longer_age_than_before() -> None:
    recent = ReportTimes()
    recent.note_report(0, 0.0)
    assert recent.within(1.0, 2.0) == 0
    recent.note_report(1, 2.0)
    assert numbers_of(recent.within(2.0, 2.0)) == [0, 1]
    assert numbers_of(recent.within(2.0, 2.5)) == [1]


def test_any_row_that_reported_within_an_age() -> None:
    recent = ReportTimes()
    recent.note_report(0, 0.0)
    recent.note_report(1, 1.0)
    assert recent.within(1.0, 3.0) == 0
    assert recent.any_within(2.0, 3.0, rows_of({0, 1}))
    assert not recent.any_within(2.0, 3.0, rows_of({0, 7}))
