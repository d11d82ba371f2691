"""Followers that read more than the host allows wait, and no others."""

from agent.logs.pace import BURST_SECONDS, MOST_BYTES, MOST_LINES, FollowPace

BURST_LINES = round(BURST_SECONDS * MOST_LINES)


def test_follower_of_a_flood_reads_as_many_lines_as_the_host_allows() -> None:
    pace = FollowPace()
    now = 100.0
    lines = 0
    while now < 160.0:
        lines += 4000
        now += pace.delay("one", 4000, 0, now=now)
    assert lines <= 60 * MOST_LINES + BURST_LINES + 4000
    assert lines >= 60 * MOST_LINES


def test_long_lines_count_by_their_bytes() -> None:
    pace = FollowPace()
    pace.delay("one", 1, round(BURST_SECONDS * MOST_BYTES), now=100.0)
    assert pace.delay("one", 1, MOST_BYTES // 4, now=100.0) == 0.25


def test_followers_of_floods_share_the_rate() -> None:
    pace = FollowPace()
    due = dict.fromkeys(range(8), 100.0)
    lines = 0
    while (now := min(due.values())) < 160.0:
        reader = min(due, key=due.__getitem__)
        lines += 4000
        due[reader] = now + pace.delay(reader, 4000, 0, now=now)
    assert lines <= 60 * MOST_LINES + 8 * (BURST_LINES + 4000)


def test_follower_of_a_quiet_game_never_waits() -> None:
    pace = FollowPace()
    for second in range(100, 160):
        for flooding in range(8):
            pace.delay(flooding, MOST_LINES, 0, now=second)
        assert pace.delay("quiet", MOST_LINES // 20, 0, now=second) == 0


def test_follower_that_has_left_slows_nobody_down() -> None:
    pace = FollowPace()
    pace.delay("gone", 10 * MOST_LINES, 0, now=100.0)
    pace.leave("gone")
    pace.delay("one", BURST_LINES, 0, now=100.0)
    assert pace.delay("one", MOST_LINES, 0, now=100.0) == 1.0
