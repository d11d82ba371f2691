"""Retry-After of a full region, estimated by the pace at which sessions end."""

import pytest

from controlplane.fleet.room_forecast import MAX_RETRY_AFTER, RETRY_AFTER, RoomForecast


def paced(interval: float, ends: int = 20) -> tuple[RoomForecast, float]:
    """A place where sessions end at this pace, and the time of the last end."""
    forecast = RoomForecast()
    for number in range(ends):
        forecast.note_ends(1, number * interval)
    return forecast, (ends - 1) * interval


@pytest.mark.parametrize("ends", [0, 1])
def test_nothing_is_known_before_there_were_two_ends(ends: int) -> None:
    forecast, now = paced(10.0, ends)
    assert forecast.retry_after(max(now, 0.0)) == RETRY_AFTER


@pytest.mark.parametrize("interval", [1.5, 10.0, 40.0])
def test_the_first_is_given_the_next_end(interval: float) -> None:
    forecast, now = paced(interval)
    assert interval <= forecast.retry_after(now) < interval + 1


def test_each_further_caller_is_given_another_end() -> None:
    forecast, now = paced(2.0)
    assert [forecast.retry_after(now) for _ in range(4)] == [2, 4, 6, 8]
    waits = [forecast.retry_after(now) for _ in range(100)]
    assert max(waits) == MAX_RETRY_AFTER
    assert waits == sorted(waits)


def test_ends_that_came_are_given_again() -> None:
    forecast, now = paced(2.0)
    for _ in range(1000):
        forecast.retry_after(now)
    now += MAX_RETRY_AFTER
    forecast.note_ends(MAX_RETRY_AFTER // 2, now)
    assert forecast.retry_after(now) == 2


def test_while_nothing_ends_the_pace_slows_down() -> None:
    forecast, now = paced(2.0)
    assert forecast.retry_after(now + 30) == 30
    assert forecast.retry_after(now + 3600) == MAX_RETRY_AFTER


def test_the_pace_follows_what_happens() -> None:
    forecast, now = paced(30.0)
    for _ in range(40):
        now += 1.0
        forecast.note_ends(1, now)
    assert forecast.pace == pytest.approx(1.0, rel=0.01)
    forecast.note_ends(10, now + 1.0)
    assert forecast.pace == pytest.approx(0.2, rel=0.7)


def test_ends_at_the_same_time() -> None:
    forecast = RoomForecast()
    forecast.note_ends(1, 5.0)
    forecast.note_ends(3, 5.0)
    assert forecast.pace == 0.0
    assert forecast.retry_after(5.0) == 1
