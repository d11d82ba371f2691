"""Hosts that are unresponsive until their sessions are given up, in virtual time."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controlplane.fleet.host.downtime import LONGEST_GAP, WRITE_INTERVAL
from controlplane.storage.tables.session_rows import remove_ended
from tests.flow.small_fleet import OneHost

HOUR = 3600.0
DAY = 24 * HOUR
TRY = 10.0  # Maximum seconds between two tries to reach a host


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[OneHost]:
    """A host that is lost after an hour; the quota is one session."""
    with closing(OneHost(tmp_path, lost_after=HOUR)) as made:
        made.rows("UPDATE account SET quota_sessions=1")
        yield made


def live(fleet: OneHost) -> list[str]:
    found = fleet.rows("SELECT id FROM session WHERE ended_ms IS NULL")
    return [session_id for (session_id,) in found]


def test_sessions_of_a_lost_host_are_dead_and_free_their_quota(fleet: OneHost) -> None:
    fleet.disconnect("cut")
    fleet.wait(HOUR - 2 * TRY)
    assert fleet.status == "server_unreachable"
    assert fleet.link().lost is None
    fleet.wait(3 * TRY)
    assert fleet.link().lost is not None
    assert fleet.status == "dead"
    assert fleet.rows("SELECT end_reason FROM session") == [("host_lost",)]
    assert live(fleet) == []
    kinds = "SELECT kind, actor FROM event WHERE kind IN ('agent.lost', 'session.ended')"
    assert fleet.rows(f"{kinds} ORDER BY kind") == [
        ("agent.lost", "controlplane"),
        ("session.ended", "controlplane"),
    ]


@pytest.mark.parametrize("how", ["cut", "killed"])
@pytest.mark.parametrize("restarted", [False, True])
def test_returning_host_stops_lost_sessions_and_gets_new_ones(
    fleet: OneHost, how: str, restarted: bool
) -> None:
    fleet.disconnect(how)
    fleet.wait(HOUR + TRY)
    assert fleet.status == "dead"
    if restarted:
        fleet.crash()
        fleet.restart()
        fleet.wait(TRY)
    assert fleet.link().lost is not None
    assert fleet.box.running  # unreachable for all
    fleet.reconnect(how)
    fleet.wait(TRY)
    assert not fleet.box.running
    assert fleet.status == "dead"
    assert fleet.link().lost is None
    assert fleet.rows("SELECT 1 FROM unanswered WHERE stopped_ms IS NULL") == []
    assert fleet.starts("y")
    assert live(fleet) == ["y"]
    assert len(fleet.box.running) == 1


def test_lost_session_is_stopped_even_without_its_row(fleet: OneHost) -> None:
    fleet.disconnect("cut")
    fleet.wait(HOUR + TRY)
    later_ms = int((fleet.loop.time() + 10**10) * 1000)
    fleet.run(fleet.control.store.run(lambda db: remove_ended(db, later_ms)))
    assert fleet.rows("SELECT 1 FROM session") == []
    fleet.reconnect("cut")
    fleet.wait(TRY)
    assert not fleet.box.running
    assert fleet.rows("SELECT 1 FROM session") == []


def test_downtime_continues_after_a_restart(fleet: OneHost) -> None:
    fleet.disconnect("cut")
    fleet.wait(HOUR / 2)
    fleet.crash()
    fleet.restart()
    fleet.wait(HOUR / 2 - 2 * TRY)
    assert fleet.link().lost is None
    fleet.wait(WRITE_INTERVAL + 4 * TRY)  # a crash loses up to that much
    assert fleet.link().lost is not None
    assert fleet.status == "dead"


def test_downtime_excludes_downtime_of_the_control_plane(fleet: OneHost) -> None:
    fleet.disconnect("cut")
    fleet.wait(HOUR / 2)
    fleet.crash()
    fleet.wait(10 * DAY)
    fleet.restart()
    fleet.wait(HOUR / 2 - 2 * TRY)
    assert fleet.link().lost is None
    assert live(fleet) == ["x"]
    fleet.reconnect("cut")
    fleet.wait(TRY)
    assert fleet.status == "running"


def test_downtime_excludes_stalls_of_the_control_plane(fleet: OneHost) -> None:
    fleet.disconnect("cut")
    fleet.wait(TRY)
    for _ in range(10):
        fleet.loop.now += 10 * HOUR
        fleet.wait(TRY)
    assert 10 * LONGEST_GAP < HOUR
    assert fleet.link().lost is None


@pytest.mark.parametrize("crashed", [False, True])
def test_downtime_restarts_after_a_report(fleet: OneHost, crashed: bool) -> None:
    fleet.disconnect("cut")
    fleet.wait(HOUR - 2 * TRY)
    fleet.reconnect("cut")
    fleet.wait(TRY)
    fleet.disconnect("cut")
    if crashed:  # at that moment: the stored value must be right
        fleet.crash()
        fleet.restart()
    fleet.wait(HOUR - 2 * TRY)
    assert fleet.link().lost is None
    assert live(fleet) == ["x"]
