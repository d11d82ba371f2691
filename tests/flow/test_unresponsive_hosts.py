"""A host that is unresponsive, and returns or is given up, in virtual time."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controlplane.fleet.host.downtime import LONGEST_GAP, WRITE_INTERVAL
from controlplane.storage.tables.sessions.session_rows import remove_ended
from tests.flow.small_fleet import OneHost

HOUR = 3600
UNRESPONSIVE_AFTER = 5.0
UNREACHABLE_AFTER = 30.0
HEARTBEAT = 2.0
BACK_WITHIN = 2.0


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[OneHost]:
    """A host that is lost after an hour."""
    with closing(OneHost(tmp_path, lost_after=HOUR)) as made:
        yield made


@pytest.mark.parametrize("how", ["cut", "killed"])
@pytest.mark.parametrize("seconds", [3.0, 8.0, 31.0, 600.0])
def test_returning_host_is_used_and_shown_in_2_s(fleet: OneHost, how: str, seconds: float) -> None:
    fleet.disconnect(how)
    fleet.wait(seconds)
    fleet.reconnect(how)
    fleet.wait(BACK_WITHIN)
    assert fleet.status == "running"
    assert fleet.starts("y")


def test_unresponsive_host_is_avoided_after_5_s_and_unreachable_after_30(fleet: OneHost) -> None:
    fleet.box.line.cut()
    link = fleet.link()
    fleet.wait(link.state.reported_at + UNRESPONSIVE_AFTER - fleet.loop.time() - 0.01)
    assert fleet.control.may_place()
    fleet.wait(0.02)
    assert not fleet.control.may_place()
    assert fleet.status == "running"
    fleet.wait(link.state.reported_at + UNREACHABLE_AFTER - fleet.loop.time() - 0.01)
    assert fleet.status == "running"
    fleet.wait(0.02)
    assert fleet.status == "server_unreachable"


@pytest.mark.parametrize("how", ["cut", "killed"])
@pytest.mark.parametrize("restarted", [False, True])
def test_stop_on_an_unresponsive_host_is_carried_out_on_its_return(
    fleet: OneHost, how: str, restarted: bool
) -> None:
    fleet.disconnect(how)
    fleet.wait(UNREACHABLE_AFTER + HEARTBEAT)
    assert not fleet.stops("x")
    if restarted:
        fleet.crash()
        fleet.restart()
    fleet.wait(600.0)
    fleet.reconnect(how)
    fleet.wait(BACK_WITHIN + HEARTBEAT)
    assert fleet.status == "exited"
    assert not fleet.box.running


def test_a_restarted_control_plane_calls_no_host_unreachable(fleet: OneHost) -> None:
    fleet.box.line.cut()
    fleet.crash()
    fleet.restart()
    fleet.wait(600.0)
    assert fleet.status == "running"


DAY = 24 * HOUR
TRY = 10.0  # Maximum seconds between two tries to reach a host


def live(fleet: OneHost) -> list[str]:
    found = fleet.rows("SELECT id FROM session WHERE ended_ms IS NULL")
    return [session_id for (session_id,) in found]


def test_sessions_of_a_lost_host_are_dead_and_free_their_quota(fleet: OneHost) -> None:
    fleet.disconnect("cut")
    fleet.wait(HOUR - 2 * TRY)
    assert fleet.status == "server_unreachable"
    assert fleet.link().state.lost is None
    fleet.wait(3 * TRY)
    assert fleet.link().state.lost is not None
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
    fleet.rows("UPDATE account SET quota_sessions=1")
    fleet.disconnect(how)
    fleet.wait(HOUR + TRY)
    assert fleet.status == "dead"
    if restarted:
        fleet.crash()
        fleet.restart()
        fleet.wait(TRY)
    assert fleet.link().state.lost is not None
    assert fleet.box.running  # unreachable for all
    fleet.reconnect(how)
    fleet.wait(TRY)
    assert not fleet.box.running
    assert fleet.status == "dead"
    assert fleet.link().state.lost is None
    assert fleet.rows("SELECT 1 FROM stop_order WHERE confirmed_ms IS NULL") == []
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


def test_start_of_a_dead_control_plane_is_freed_with_its_lost_host(fleet: OneHost) -> None:
    fleet.disconnect("cut")
    fleet.rows("UPDATE session SET confirmed=0, state='created'")
    fleet.wait(HOUR + TRY)
    assert fleet.rows("SELECT 1 FROM session") == []
    fleet.reconnect("cut")
    fleet.wait(TRY)
    assert not fleet.box.running


def test_downtime_continues_after_a_restart(fleet: OneHost) -> None:
    fleet.disconnect("cut")
    fleet.wait(HOUR / 2)
    fleet.crash()
    fleet.restart()
    fleet.wait(HOUR / 2 - 2 * TRY)
    assert fleet.link().state.lost is None
    fleet.wait(WRITE_INTERVAL + 4 * TRY)  # a crash loses up to that much
    assert fleet.link().state.lost is not None
    assert fleet.status == "dead"


def test_downtime_excludes_downtime_of_the_control_plane(fleet: OneHost) -> None:
    fleet.disconnect("cut")
    fleet.wait(HOUR / 2)
    fleet.crash()
    fleet.wait(10 * DAY)
    fleet.restart()
    fleet.wait(HOUR / 2 - 2 * TRY)
    assert fleet.link().state.lost is None
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
    assert fleet.link().state.lost is None


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
    assert fleet.link().state.lost is None
    assert live(fleet) == ["x"]
