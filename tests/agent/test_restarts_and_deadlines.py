from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.sessions.deadlines import Deadlines, deadline_after, due_boottime
from agent.sessions.restarts import next_delay, should_restart


def test_the_delay_doubles_from_one_second_to_sixty() -> None:
    delays = [0.0]
    for _ in range(8):
        delays.append(next_delay(delays[-1], ran_for=1.0))
    assert delays[1:] == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_process_that_ran_long_begins_at_the_first_delay() -> None:
    assert next_delay(60.0, ran_for=3600) == 1.0


@pytest.mark.parametrize(
    ("wanted", "exit_code", "stopping", "answer"),
    [
        (True, 1, False, True),
        (True, 137, False, True),
        (True, None, False, True),
        (True, 0, False, False),
        (True, 1, True, False),
        (False, 1, False, False),
    ],
)
def test_failures_alone_are_restarted(
    *, wanted: bool, exit_code: int | None, stopping: bool, answer: bool
) -> None:
    assert should_restart(wanted=wanted, exit_code=exit_code, stopping=stopping) is answer


def test_on_the_same_boot_the_wall_clock_does_not_matter() -> None:
    deadline = deadline_after(60, now=1_000_000, boottime=500, boot_id="b1")
    for now in (0, 1_000_000, 1_000_000 + 86_400, 1_000_000 - 315_360_000):
        assert due_boottime(deadline, now=now, boottime=510, boot_id="b1") == 560


def test_after_a_reboot_the_wall_clock_decides() -> None:
    deadline = deadline_after(60, now=1_000_000, boottime=500, boot_id="b1")
    assert due_boottime(deadline, now=1_000_020, boottime=7, boot_id="b2") == 47
    assert due_boottime(deadline, now=1_000_100, boottime=7, boot_id="b2") < 7


def test_the_earliest_is_due_first_and_a_new_time_replaces_the_old() -> None:
    deadlines = Deadlines()
    deadlines.set("a", 10)
    deadlines.set("b", 5)
    deadlines.set("a", 20)
    deadlines.set("c", 7)
    deadlines.clear("c")
    assert deadlines.next_due() == 5
    assert deadlines.snapshot() == [(5, "b"), (20, "a")]
    assert deadlines.pop_due(10) == ["b"]
    assert deadlines.pop_due(20) == ["a"]
    assert deadlines.next_due() is None


@given(
    st.lists(st.tuples(st.sampled_from("abcde"), st.one_of(st.none(), st.integers(0, 50)))),
    st.integers(0, 50),
)
def test_exactly_what_is_due_is_popped(moves: list[tuple[str, int | None]], now: int) -> None:
    deadlines, model = Deadlines(), dict[str, int]()
    for name, due in moves:
        if due is None:
            deadlines.clear(name)
            model.pop(name, None)
        else:
            deadlines.set(name, due)
            model[name] = due
    assert sorted(deadlines.pop_due(now)) == sorted(n for n, due in model.items() if due <= now)
    assert deadlines.next_due() == min((d for d in model.values() if d > now), default=None)
