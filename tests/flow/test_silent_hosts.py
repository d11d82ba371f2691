"""A host that goes silent and comes back, in virtual time."""

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.flow.small_fleet import Box, Control
from tests.flow.virtual_time import VirtualLoop

PLACEMENT_SILENCE, UNREACHABLE_AFTER = 5.0, 30.0
HEARTBEAT = 2.0
BACK_WITHIN = 2.0


class Fleet:
    """A control plane and a host, or two."""

    def __init__(self, folder: Path, hosts: int = 1, skew: float = 0.0) -> None:
        self.loop = VirtualLoop()
        asyncio.set_event_loop(self.loop)
        self.boxes = []
        for number in range(hosts):
            place = folder / f"h{number}"
            place.mkdir()
            self.boxes.append(Box(self.loop, place, f"h{number}", skew))
        for box in self.boxes:
            self.run(box.boot())
        self.state = folder / "state"
        self.control = Control(self.loop, self.state, self.boxes)
        self.run(self.control.open())
        self.wait(1.0)

    @property
    def box(self) -> Box:
        return self.boxes[0]

    @property
    def status(self) -> str:
        return str(self.run(self.control.status("alice", "x")))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    def starts(self, session_id: str) -> bool:
        return bool(self.loop.run_until_complete(self.control.start("alice", session_id)))

    def stops(self, session_id: str) -> bool:
        return bool(self.loop.run_until_complete(self.control.stop("alice", session_id)))

    def close(self) -> None:
        self.run(self.control.crash())
        for box in self.boxes:
            self.run(box.kill())
            self.run(box.line.close())
        self.loop.close()
        asyncio.set_event_loop(None)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    try:
        assert made.starts("x")
        yield made
    finally:
        made.close()


def go_silent(fleet: Fleet, how: str) -> None:
    """Be gone without a word, or with a closed port."""
    if how == "cut":
        fleet.box.line.cut()
    else:
        fleet.run(fleet.box.kill())


def come_back(fleet: Fleet, how: str) -> None:
    if how == "cut":
        fleet.box.line.restore()
    else:
        fleet.run(fleet.box.boot())


@pytest.mark.parametrize("how", ["cut", "killed"])
@pytest.mark.parametrize("seconds", [3.0, 8.0, 31.0, 600.0])
def test_a_host_that_is_back_is_used_and_shown_as_it_is_within_2_s(
    fleet: Fleet, how: str, seconds: float
) -> None:
    go_silent(fleet, how)
    fleet.wait(seconds)
    come_back(fleet, how)
    fleet.wait(BACK_WITHIN)
    assert fleet.status == "running"
    assert fleet.starts("y")


def test_placement_leaves_a_silent_host_after_5_s_and_callers_are_told_after_30(
    fleet: Fleet,
) -> None:
    fleet.box.line.cut()
    link = fleet.control.fleet.host("h0")
    assert link is not None
    assert link.reported_at is not None
    fleet.wait(link.reported_at + PLACEMENT_SILENCE - fleet.loop.time() - 0.01)
    assert fleet.control.may_place()
    fleet.wait(0.02)
    assert not fleet.control.may_place()
    assert fleet.status == "running"
    fleet.wait(link.reported_at + UNREACHABLE_AFTER - fleet.loop.time() - 0.01)
    assert fleet.status == "running"
    fleet.wait(0.02)
    assert fleet.status == "server_unreachable"


@pytest.mark.parametrize("how", ["cut", "killed"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_stop_that_was_asked_meanwhile_is_carried_out_on_the_return(
    fleet: Fleet, how: str, restarted: bool
) -> None:
    go_silent(fleet, how)
    fleet.wait(UNREACHABLE_AFTER + HEARTBEAT)
    assert not fleet.stops("x")
    if restarted:
        fleet.run(fleet.control.crash())
        fleet.control = Control(fleet.loop, fleet.state, fleet.boxes)
        fleet.run(fleet.control.open())
    fleet.wait(600.0)
    come_back(fleet, how)
    fleet.wait(BACK_WITHIN + HEARTBEAT)
    assert fleet.status == "exited"
    assert not fleet.box.running


def test_a_restarted_control_plane_calls_no_host_unreachable(fleet: Fleet) -> None:
    fleet.box.line.cut()
    fleet.run(fleet.control.crash())
    fleet.control = Control(fleet.loop, fleet.state, fleet.boxes)
    fleet.run(fleet.control.open())
    fleet.wait(600.0)
    assert fleet.status == "running"
