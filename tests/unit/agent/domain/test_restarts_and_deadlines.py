from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.deadlines import Deadlines, deadline_after, deadline_by, due_boottime
from agent.domain.restarts import next_delay, should_restart
from tests.support.fakes import FakeClock


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
    clock = FakeClock()
    now = clock.boottime()
    deadlines = Deadlines(clock)
    deadlines.set("a", now + 10)
    deadlines.set("b", now - 1)
    deadlines.set("a", now)
    deadlines.set("c", now - 5)
    deadlines.set("d", now + 1)
    deadlines.clear("c")
    assert deadlines.next_due() == now - 1
    assert deadlines.snapshot() == [(now - 1, "b"), (now, "a"), (now + 1, "d")]
    assert deadlines.pop_due() == ["b", "a"]
    assert deadlines.pop_due() == []
    assert deadlines.next_due() == now + 1


def test_deadlines_of_this_boot_and_of_an_earlier_one_are_due_in_their_order() -> None:
    clock = FakeClock()
    deadlines = Deadlines(clock)
    for name, ttl in (("a", -1), ("b", -3), ("c", 5)):
        earlier = replace(deadline_by(clock, ttl), boot_id="an earlier one", boottime=1e9)
        deadlines.arm(name, earlier)
        deadlines.arm(f"{name}{name}", deadline_by(clock, ttl - 0.5))
    assert deadlines.pop_due() == ["bb", "b", "aa", "a"]
    deadlines.clear("cc")
    assert deadlines.next_due() == clock.boottime() + 5
    deadlines.arm("c", deadline_by(clock, 1))
    assert deadlines.next_due() == clock.boottime() + 1
    deadlines.clear("c")
    assert (deadlines.next_due(), deadlines.snapshot()) == (None, [])


@given(
    st.lists(st.tuples(st.sampled_from("abcde"), st.one_of(st.none(), st.integers(0, 50)))),
    st.integers(0, 50),
)
def test_exactly_what_is_due_is_popped(moves: list[tuple[str, int | None]], now: int) -> None:
    clock = FakeClock()
    begin = clock.boottime() - now
    deadlines, model = Deadlines(clock), dict[str, int]()
    for name, due in moves:
        if due is None:
            deadlines.clear(name)
            model.pop(name, None)
        else:
            deadlines.set(name, begin + due)
            model[name] = due
    assert sorted(deadlines.pop_due()) == sorted(n for n, due in model.items() if due <= now)
    left = min((begin + due for due in model.values() if due > now), default=None)
    assert deadlines.next_due() == left
