"""Hosts that are silent for so long that their sessions are given up, in virtual time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from controlplane.fleet.host.downtime import LONGEST_GAP, WRITE_INTERVAL
from controlplane.settings.model import Config
from controlplane.storage.tables.session_rows import remove_ended
from tests.flow.small_fleet import Control
from tests.flow.test_silent_hosts import Fleet, come_back, go_silent

HOUR = 3600.0
DAY = 24 * HOUR
TRY = 10.0
"""Seconds from one try to reach a host to the next, at most."""


class Losing(Fleet):
    """A host with the session `x` of an account that may have one alone."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.lost_after = DAY
        assert self.starts("x")
        self.write("UPDATE account SET quota_sessions=1")

    def write(self, sql: str) -> None:
        def transaction(db: Database) -> None:
            db.execute(sql)

        self.run(self.control.store.run(transaction))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.control.store.rows(sql)

    def is_lost(self) -> bool:
        link = self.control.fleet.host("h0")
        assert link is not None
        return link.lost_ms is not None

    @property
    def live(self) -> list[str]:
        return [row[0] for row in self.rows("SELECT id FROM session WHERE ended_ms IS NULL")]

    def crash(self) -> None:
        self.run(self.control.crash())

    def restart(self) -> None:
        self.control = Control(self.loop, self.state, self.boxes, lost_after=self.lost_after)
        self.run(self.control.open())


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Losing]:
    made = Losing(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def hourly(fleet: Losing) -> Losing:
    """Hosts are given up after an hour."""
    fleet.crash()
    fleet.lost_after = HOUR
    fleet.restart()
    fleet.wait(TRY)
    return fleet


@pytest.mark.slow
def test_by_default_a_host_is_given_up_after_a_day(fleet: Losing) -> None:
    assert Config().lost_after == DAY
    go_silent(fleet, "cut")
    fleet.wait(DAY - 2 * TRY)
    assert not fleet.is_lost()
    fleet.wait(3 * TRY)
    assert fleet.is_lost()


def test_sessions_of_a_host_that_was_silent_for_too_long_are_dead_and_their_quota_is_free(
    hourly: Losing,
) -> None:
    fleet = hourly
    go_silent(fleet, "cut")
    fleet.wait(HOUR - 2 * TRY)
    assert fleet.status == "server_unreachable"
    assert not fleet.is_lost()
    fleet.wait(3 * TRY)
    assert fleet.is_lost()
    assert fleet.status == "dead"
    assert fleet.rows("SELECT end_reason FROM session") == [("host_lost",)]
    assert fleet.live == []
    kinds = "SELECT kind, actor FROM event WHERE kind IN ('agent.lost', 'session.ended')"
    assert fleet.rows(f"{kinds} ORDER BY kind") == [
        ("agent.lost", "controlplane"),
        ("session.ended", "controlplane"),
    ]


@pytest.mark.parametrize("how", ["cut", "killed"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_host_that_is_back_ends_what_was_given_up_and_gets_new_sessions(
    hourly: Losing, how: str, restarted: bool
) -> None:
    fleet = hourly
    go_silent(fleet, how)
    fleet.wait(HOUR + TRY)
    assert fleet.status == "dead"
    if restarted:
        fleet.crash()
        fleet.restart()
        fleet.wait(TRY)
    assert fleet.is_lost()
    assert fleet.box.running  # out of everybody's reach
    come_back(fleet, how)
    fleet.wait(TRY)
    assert not fleet.box.running
    assert fleet.status == "dead"
    assert not fleet.is_lost()
    assert fleet.rows("SELECT 1 FROM unanswered WHERE stopped_ms IS NULL") == []
    assert fleet.starts("y")
    assert fleet.live == ["y"]
    assert len(fleet.box.running) == 1


def test_what_was_given_up_is_stopped_also_when_nobody_remembers_its_session(
    hourly: Losing,
) -> None:
    fleet = hourly
    go_silent(fleet, "cut")
    fleet.wait(HOUR + TRY)
    later_ms = int((fleet.loop.time() + 10**10) * 1000)
    fleet.run(fleet.control.store.run(lambda db: remove_ended(db, later_ms)))
    assert fleet.rows("SELECT 1 FROM session") == []
    come_back(fleet, "cut")
    fleet.wait(TRY)
    assert not fleet.box.running
    assert fleet.rows("SELECT 1 FROM session") == []


def test_silence_is_counted_on_after_a_restart(hourly: Losing) -> None:
    fleet = hourly
    go_silent(fleet, "cut")
    fleet.wait(HOUR / 2)
    fleet.crash()
    fleet.restart()
    fleet.wait(HOUR / 2 - 2 * TRY)
    assert not fleet.is_lost()
    fleet.wait(WRITE_INTERVAL + 4 * TRY)  # a crash forgets so much of it
    assert fleet.is_lost()
    assert fleet.status == "dead"


def test_what_passes_while_the_control_plane_is_down_is_nobodys_silence(hourly: Losing) -> None:
    fleet = hourly
    go_silent(fleet, "cut")
    fleet.wait(HOUR / 2)
    fleet.crash()
    fleet.wait(10 * DAY)
    fleet.restart()
    fleet.wait(HOUR / 2 - 2 * TRY)
    assert not fleet.is_lost()
    assert fleet.live == ["x"]
    come_back(fleet, "cut")
    fleet.wait(TRY)
    assert fleet.status == "running"


def test_a_control_plane_that_stood_still_counts_none_of_that(hourly: Losing) -> None:
    fleet = hourly
    go_silent(fleet, "cut")
    fleet.wait(TRY)
    for _ in range(10):
        fleet.loop.now += 10 * HOUR
        fleet.wait(TRY)
    assert 10 * LONGEST_GAP < HOUR
    assert not fleet.is_lost()


@pytest.mark.parametrize("crashed", [False, True])
def test_silence_restarts_when_a_host_was_heard(hourly: Losing, crashed: bool) -> None:
    fleet = hourly
    go_silent(fleet, "cut")
    fleet.wait(HOUR - 2 * TRY)
    come_back(fleet, "cut")
    fleet.wait(TRY)
    go_silent(fleet, "cut")
    if crashed:  # right then: what was written has to be right
        fleet.crash()
        fleet.restart()
    fleet.wait(HOUR - 2 * TRY)
    assert not fleet.is_lost()
    assert fleet.live == ["x"]


def test_a_start_whose_control_plane_is_gone_is_freed_with_its_host(hourly: Losing) -> None:
    fleet = hourly
    go_silent(fleet, "cut")
    fleet.write("UPDATE session SET confirmed=0, state='created'")
    fleet.wait(HOUR + TRY)
    assert fleet.rows("SELECT 1 FROM session") == []
    come_back(fleet, "cut")
    fleet.wait(TRY)
    assert not fleet.box.running


def test_it_is_noted_once_a_minute_that_a_host_is_heard(hourly: Losing) -> None:
    fleet = hourly
    heard = "SELECT heard_ms, silent_ms FROM agent"
    seen = set()
    for _ in range(100):
        fleet.wait(HOUR / 100)
        seen |= set(fleet.rows(heard))
    assert 50 <= len(seen) <= HOUR / WRITE_INTERVAL + 1
    assert {silent_ms for _, silent_ms in seen} == {0}
