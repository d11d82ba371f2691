from agent.domain.restarts import LONGEST_DELAY_SECONDS, STEADY_SECONDS
from agent.domain.setbacks import Setback, set_back


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
