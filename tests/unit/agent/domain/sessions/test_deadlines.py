from dataclasses import replace

from agent.domain.sessions.deadlines import Deadlines, deadline_by
from tests.support.fake_clock import FakeClock


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
