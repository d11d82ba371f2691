"""Followers that take more of the event loop than they may wait, and no others."""

from agent.logs.pace import BURST_SECONDS, PART_OF_LOOP, FollowPace

PART = 0.01  # Seconds that the lines of a part take


def test_follower_of_a_flood_takes_its_part_of_the_loop() -> None:
    pace = FollowPace()
    now = 100.0
    taken = 0.0
    while now < 160.0:
        taken += PART
        now += pace.delay("one", PART, now=now)
    assert 60 * PART_OF_LOOP <= taken <= (60 + BURST_SECONDS) * PART_OF_LOOP + PART


def test_followers_of_floods_share_the_part() -> None:
    pace = FollowPace()
    due = dict.fromkeys(range(8), 100.0)
    taken = 0.0
    while (now := min(due.values())) < 160.0:
        reader = min(due, key=due.__getitem__)
        taken += PART
        due[reader] = now + pace.delay(reader, PART, now=now)
    assert taken <= (60 + 8 * BURST_SECONDS) * PART_OF_LOOP + 8 * PART


def test_follower_of_a_quiet_game_never_waits() -> None:
    pace = FollowPace()
    for second in range(100, 160):
        for flooding in range(8):
            pace.delay(flooding, PART, now=second)
        assert pace.delay("quiet", PART_OF_LOOP * BURST_SECONDS / 10, now=second) == 0


def test_follower_that_has_left_slows_nobody_down() -> None:
    pace = FollowPace()
    pace.delay("gone", 10.0, now=100.0)
    pace.leave("gone")
    pace.delay("one", PART_OF_LOOP * BURST_SECONDS, now=100.0)
    assert pace.delay("one", PART_OF_LOOP, now=100.0) == 1.0
