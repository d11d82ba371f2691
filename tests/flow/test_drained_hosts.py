"""Hosts that are drained through the control plane: the agents are real, in virtual time."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.domain.session import Session
from agent.state.drain import DrainOrder
from controlplane.operators.agents import ShownAgent
from tests.flow.enrolled import Enrolling
from tests.flow.small_fleet import Control, put_back, remove_database
from tests.flow.test_silent_hosts import BACK_WITHIN, Fleet, come_back, go_silent
from tiltyard.contract import EndReason

HOUR = 3600
TOLD_WITHIN = BACK_WITHIN + 2.0
"""Seconds after its return in which a host has its order."""


class Draining(Fleet):
    """A host with the session `x`."""

    def __init__(self, folder: Path, skew: float = 0.0) -> None:
        super().__init__(folder, skew=skew)
        assert self.starts("x")

    def drain(self, seconds: int | None = None) -> ShownAgent:
        shown: ShownAgent = self.loop.run_until_complete(self.control.drain("h0", seconds))
        return shown

    def undrain(self) -> ShownAgent:
        shown: ShownAgent = self.loop.run_until_complete(self.control.undrain("h0"))
        return shown

    def drain_here(self, *, draining: bool) -> None:
        """As `tiltyard-agent drain` does on the host."""
        sessions = self.box.agent.sessions
        self.run(sessions.set_drain(DrainOrder(0, draining=draining)))
        self.wait(1.0)

    @property
    def is_drained(self) -> bool:
        """As the host sees it."""
        return self.box.agent.reservations.drain.now.draining

    @property
    def shown(self) -> ShownAgent:
        agent: ShownAgent = self.run(self.control.agents.get("h0"))
        return agent

    @property
    def session(self) -> Session:
        (found,) = self.box.agent.sessions.all()
        return found

    @property
    def game_reads(self) -> Any:
        folder = self.box.agent.records.public_dir(self.session.internal_id)
        return json.loads((folder / "session.json").read_text())

    def crash(self) -> None:
        self.run(self.control.crash())

    def restart(self) -> None:
        self.control = Control(self.loop, self.state, self.boxes)
        self.run(self.control.open())
        self.wait(BACK_WITHIN)

    def keep_deadlines(self) -> None:
        """Have the agent look at its deadlines, which its daemon does."""
        self.loop.spawn(self.box, self.box.agent.sessions.keep_deadlines(), "deadlines")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Draining]:
    made = Draining(tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_a_drained_host_tells_its_games_and_stops_them_at_the_deadline(
    fleet: Draining,
) -> None:
    fleet.keep_deadlines()
    shown = fleet.drain(2 * HOUR)
    assert (shown.draining, shown.drain_pending) == (True, False)
    assert fleet.is_drained
    assert fleet.status == "draining"
    assert fleet.game_reads["draining"]
    assert fleet.game_reads["drain_time"] == shown.drain.deadline_ms
    assert not fleet.starts("y")
    fleet.wait(2 * HOUR - 60)
    assert fleet.status == "draining"
    fleet.wait(120)
    assert fleet.status == "exited"
    assert fleet.session.end_reason is EndReason.DRAIN
    assert not fleet.undrain().draining
    assert fleet.starts("y")


@pytest.mark.parametrize("skew", [-3 * HOUR, 3 * HOUR])
def test_a_deadline_holds_on_a_host_whose_clock_is_wrong(tmp_path: Path, skew: int) -> None:
    fleet = Draining(tmp_path, skew)
    try:
        fleet.keep_deadlines()
        deadline_ms = fleet.drain(2 * HOUR).drain.deadline_ms
        fleet.wait(60)
        assert fleet.shown.drain.deadline_ms == deadline_ms  # by the operator's clock
        assert deadline_ms is not None
        assert fleet.game_reads["drain_time"] == deadline_ms + skew * 1000  # by the game's
        fleet.wait(2 * HOUR - 120)
        assert fleet.status == "draining"
        fleet.wait(120)
        assert fleet.status == "exited"
    finally:
        fleet.close()


@pytest.mark.parametrize("how", ["cut", "killed"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_host_that_is_silent_is_drained_on_its_return(
    fleet: Draining, how: str, restarted: bool
) -> None:
    go_silent(fleet, how)
    fleet.wait(40.0)
    assert fleet.drain(2 * HOUR).drain_pending
    if restarted:
        fleet.crash()
        fleet.restart()
    fleet.wait(600.0)
    come_back(fleet, how)
    fleet.wait(TOLD_WITHIN)
    assert fleet.is_drained
    assert not fleet.shown.drain_pending
    assert fleet.status == "draining"
    assert fleet.game_reads["drain_time"] == fleet.shown.drain.deadline_ms
    assert not fleet.starts("y")


@pytest.mark.parametrize("draining", [True, False])
def test_the_latest_order_wins_wherever_it_was_given(fleet: Draining, draining: bool) -> None:
    if not draining:
        fleet.drain()
    fleet.drain_here(draining=draining)
    assert fleet.shown.draining == draining
    assert fleet.status == ("draining" if draining else "running")
    fleet.crash()
    fleet.restart()
    fleet.run(fleet.box.kill())
    fleet.run(fleet.box.boot())
    fleet.wait(TOLD_WITHIN)
    assert fleet.is_drained == fleet.shown.draining == draining
    assert fleet.starts("y") != draining
    fleet.undrain()
    assert not fleet.is_drained
    assert fleet.drain().draining
    assert fleet.is_drained


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("draining", [True, False])
def test_a_host_stays_as_it_is_under_an_older_database_until_the_next_order(
    fleet: Draining, tmp_path: Path, *, draining: bool, lost: bool
) -> None:
    """The copy says the opposite, and has an older revision or none at all."""
    (fleet.undrain if draining else fleet.drain)()
    fleet.control.store.copy(tmp_path / "copy.db")
    for order in (fleet.drain, fleet.undrain)[: 1 if draining else 2]:
        order()
    fleet.crash()
    if lost:
        remove_database(fleet.state)
    else:
        put_back(tmp_path / "copy.db", fleet.state)
    fleet.restart()
    assert fleet.is_drained == fleet.shown.draining == draining
    assert not fleet.shown.drain_pending
    (fleet.undrain if draining else fleet.drain)()
    assert fleet.is_drained == fleet.shown.draining == (not draining)


def test_an_order_to_a_silent_host_counts_under_a_lost_database(fleet: Draining) -> None:
    fleet.drain()
    go_silent(fleet, "cut")
    fleet.crash()
    remove_database(fleet.state)
    fleet.restart()
    assert fleet.undrain().drain_pending
    come_back(fleet, "cut")
    fleet.wait(TOLD_WITHIN)
    assert not fleet.is_drained
    assert fleet.starts("y")


async def test_over_mutual_tls_and_when_the_host_enrols_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.operators.agents.ORDER_WAIT", 20.0)
    async with Enrolling(tmp_path) as system:
        host, path = await system.joined("host-1"), "/operator/agent/host-1/drain"
        token = system.operator_token
        drained = await system.call("POST", path, token=token, json={"deadline": "2h"})
        assert (drained.status, drained.json["drainPending"]) == (200, False)
        link = system.control_plane.fleet.host("host-1")
        assert link is not None
        ordered = link.drain
        await host.stop()
        await system.enrol(host, await system.token_again("host-1"))
        shown = await system.shown("host-1")
        assert (shown["draining"], shown["drainDeadline"]) == (True, ordered.deadline_ms)
        await host.start()
        await system.reaches("host-1", "draining")
        shown = await system.shown("host-1")
        assert (shown["draining"], shown["drainPending"]) == (True, False)
        assert shown["drainDeadline"] == ordered.deadline_ms
        assert (shown["runcVersion"], shown["kernelVersion"]) == ("fake runc", "fake kernel")
        called_off = await system.call("DELETE", path, token=token)
        assert (called_off.json["draining"], called_off.json["drainPending"]) == (False, False)
