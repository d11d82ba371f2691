from dataclasses import replace

from agent.domain.deadlines import Deadlines, deadline_by, due_by
from tests.support.fakes import FakeClock


def test_wall_clock_is_ignored_on_the_same_boot() -> None:
    clock = FakeClock()
    deadline, due = deadline_by(clock, 60), clock.boottime() + 60
    for jump in (0, 86_400, -315_360_000):
        clock.jump(jump)
        assert due_by(clock, deadline) == due


def test_wall_clock_decides_after_a_reboot() -> None:
    clock = FakeClock()
    deadline = deadline_by(clock, 60)
    clock.reboot(7)
    left = deadline.expire_time - clock.time()
    assert due_by(clock, deadline) == clock.boottime() + left
    clock.jump(100)
    assert due_by(clock, deadline) == clock.boottime() + left - 100


def test_deadlines_of_different_boots_are_due_in_order() -> None:
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
    assert deadlines.next_due() is None
