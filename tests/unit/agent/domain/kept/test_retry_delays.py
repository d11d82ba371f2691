import math

from agent.domain.kept.retry_delays import RetryDelay, RetryDelays, delay_after_failure
from agent.domain.sessions.restarts import LONGEST_DELAY_SECONDS, STEADY_SECONDS


def test_delay_doubles_up_to_a_limit() -> None:
    found: RetryDelay | None = None
    delays = []
    now = 100.0
    for _ in range(8):
        found = delay_after_failure(found, "it crashed", now)
        assert found.until == now + found.delay
        delays.append(found.delay)
        now = found.until
    assert delays == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, LONGEST_DELAY_SECONDS, LONGEST_DELAY_SECONDS]


def test_failures_during_a_back_off_do_not_count() -> None:
    found = delay_after_failure(None, "it crashed", 100.0)
    assert delay_after_failure(found, "so did another", 100.5) == found


def test_delay_begins_again_after_a_long_time_without_failures() -> None:
    before = RetryDelay("it crashed", 32.0, 200.0)
    found = delay_after_failure(before, "again", 200.0 + STEADY_SECONDS)
    assert found == RetryDelay("again", 1.0, 801.0)


def test_success_ends_the_cause_and_not_the_delay() -> None:
    retry_delays = RetryDelays()
    retry_delays.note("a", "it crashed", 100.0)
    assert retry_delays.causes(102.0) == {"a": "it crashed"}
    retry_delays.note_success("a")
    retry_delays.note_success("b")
    assert retry_delays.causes(102.0) == {}
    retry_delays.note("a", "again", 102.0)
    assert retry_delays.next_end(102.0) == 104.0
    assert retry_delays.causes(102.0) == {"a": "again"}


def test_causes_are_shown_for_ten_minutes() -> None:
    retry_delays = RetryDelays()
    retry_delays.note("a", "it crashed", 100.0)
    assert retry_delays.causes(100.0 + STEADY_SECONDS) == {"a": "it crashed"}
    assert retry_delays.causes(101.0 + STEADY_SECONDS) == {}


def test_keys_wait_until_their_back_off_ends() -> None:
    retry_delays = RetryDelays()
    retry_delays.note("a", "it crashed", 100.0)
    retry_delays.note("b", "it crashed", 100.5)
    assert set(retry_delays.held_back(100.9)) == {"a", "b"}
    assert retry_delays.next_end(100.9) == 101.0
    assert set(retry_delays.held_back(101.0)) == {"b"}
    retry_delays.keep(["c"], 101.0)
    assert retry_delays.causes(101.0) == {"b": "it crashed"}
    retry_delays.forget("b")
    assert retry_delays.next_end(101.0) == math.inf
