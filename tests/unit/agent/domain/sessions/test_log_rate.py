import pytest

from agent.domain.sessions.log_rate import (
    KNOWN_SECONDS,
    TOLERATED_SECONDS,
    LogExcess,
    LogRate,
    LogShares,
)


@pytest.mark.parametrize(
    ("rate", "limits", "exceeds"),
    [
        (LogRate(11, 0), LogRate(10, 100), True),
        (LogRate(10, 100), LogRate(10, 100), False),
        (LogRate(1, 101), LogRate(10, 100), True),
        (LogRate(1e9, 50), LogRate(0, 100), False),
        (LogRate(5, 1e9), LogRate(10, 0), False),
    ],
)
def test_limit_of_zero_is_none(rate: LogRate, limits: LogRate, exceeds: bool) -> None:
    assert rate.exceeds(limits) is exceeds


@pytest.mark.parametrize(
    ("rate", "exceeds"),
    [
        (LogRate(50, 500), False),
        (LogRate(51, 500), True),
        (LogRate(50, 501), True),
    ],
)
def test_account_may_print_half_of_what_the_host_allows(rate: LogRate, exceeds: bool) -> None:
    shares = LogShares(LogRate(100, 1000))
    assert shares.exceeds("a", [rate], sessions=1, now=0.0) is exceeds


def test_account_may_print_less_while_others_print() -> None:
    shares = LogShares(LogRate(100, 0))
    assert not shares.exceeds("b", [LogRate(30, 1e9)], sessions=1, now=0.0)
    assert shares.exceeds("a", [LogRate(40, 1e9)], sessions=1, now=KNOWN_SECONDS)
    assert not shares.exceeds("a", [LogRate(40, 1e9)], sessions=1, now=KNOWN_SECONDS + 1)


def test_sum_of_an_account_is_estimated_from_a_sample_of_its_sessions() -> None:
    shares = LogShares(LogRate(100, 0))
    sampled = [LogRate(1, 0), LogRate(3, 0)]
    assert not shares.exceeds("a", sampled, sessions=25, now=0.0)
    assert shares.exceeds("a", sampled, sessions=26, now=0.0)


def test_session_is_ended_once_its_seconds_are_used_up() -> None:
    excess = LogExcess()
    assert excess.update({"a": True, "b": False}, TOLERATED_SECONDS - 1) == []
    assert excess.update({"a": True, "b": True}, 1.0) == ["a"]
    assert set(excess.names) == {"a", "b"}


def test_seconds_within_the_limits_are_forgiven_slowly() -> None:
    excess = LogExcess()
    excess.update({"a": True}, 10.0)
    assert excess.update({"a": False}, 3 * 10.0) == []
    assert set(excess.names) == {"a"}
    excess.update({}, 10.0)
    assert set(excess.names) == set()


def test_session_that_could_not_be_sampled_keeps_its_seconds() -> None:
    excess = LogExcess()
    excess.update({"a": True}, TOLERATED_SECONDS - 1)
    excess.update({}, 1000.0, unknown={"a"})
    assert excess.update({"a": True}, 1.0) == ["a"]


@pytest.mark.parametrize(
    ("share", "ends"),
    [
        (0.1, False),
        (0.3, True),
    ],
)
def test_flood_in_bursts_is_ended_if_it_takes_enough_of_the_time(share: float, ends: bool) -> None:
    excess = LogExcess()
    overdue: list[str] = []
    for _ in range(100):
        overdue += excess.update({"a": True}, 10 * share)
        overdue += excess.update({"a": False}, 10 * (1 - share))
    assert bool(overdue) is ends
