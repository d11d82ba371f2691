import math

from agent.domain.kept.setbacks import Setback, Setbacks, set_back
from agent.domain.sessions.restarts import LONGEST_DELAY_SECONDS, STEADY_SECONDS


def test_delay_doubles_up_to_a_limit() -> None:
    found: Setback | None = None
    delays = []
    now = 100.0
    for _ in range(8):
        found = set_back(found, "it crashed", now)
        assert found.until == now + found.delay
        delays.append(found.delay)
        now = found.until
    assert delays == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, LONGEST_DELAY_SECONDS, LONGEST_DELAY_SECONDS]


def test_failures_during_a_back_off_do_not_count() -> None:
    found = set_back(None, "it crashed", 100.0)
    assert set_back(found, "so did another", 100.5) == found


def test_delay_begins_again_after_a_long_time_without_failures() -> None:
    before = Setback("it crashed", 32.0, 200.0)
    assert set_back(before, "again", 200.0 + STEADY_SECONDS) == Setback("again", 1.0, 801.0)


def test_success_ends_the_cause_and_not_the_delay() -> None:
    setbacks = Setbacks()
    setbacks.note("a", "it crashed", 100.0)
    assert setbacks.causes(102.0) == {"a": "it crashed"}
    setbacks.note_success("a")
    setbacks.note_success("b")
    assert setbacks.causes(102.0) == {}
    setbacks.note("a", "again", 102.0)
    assert setbacks.next_end(102.0) == 104.0
    assert setbacks.causes(102.0) == {"a": "again"}


def test_causes_are_shown_for_ten_minutes() -> None:
    setbacks = Setbacks()
    setbacks.note("a", "it crashed", 100.0)
    assert setbacks.causes(100.0 + STEADY_SECONDS) == {"a": "it crashed"}
    assert setbacks.causes(101.0 + STEADY_SECONDS) == {}


def test_keys_wait_until_their_back_off_ends() -> None:
    setbacks = Setbacks()
    setbacks.note("a", "it crashed", 100.0)
    setbacks.note("b", "it crashed", 100.5)
    assert set(setbacks.held_back(100.9)) == {"a", "b"}
    assert setbacks.next_end(100.9) == 101.0
    assert set(setbacks.held_back(101.0)) == {"b"}
    setbacks.keep(["c"], 101.0)
    assert setbacks.causes(101.0) == {"b": "it crashed"}
    setbacks.forget("b")
    assert setbacks.next_end(101.0) == math.inf
