from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

from controlplane.domain.hosts.agents import Agent
from controlplane.domain.hosts.contract import Drain, WatchMessage
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host_maker import HostMaker
from controlplane.storage.engine.store import Store
from tests.support.fake_clock import FakeClock
from tests.unit.controlplane.domain.placement.test_placement import HOST
from tiltyard.contract import Resources
from tiltyard.runtime.clock import Clock


def a_fleet(clock: Clock) -> Fleet:
    """A fleet that has no database and calls no host."""
    nothing = cast("Any", None)
    store = Store(Path("not opened"))
    random = Random(1)
    maker = HostMaker(
        store,
        nothing,
        dial=lambda _: nothing,
        login_for=nothing,
        lost_after=3600.0,
        clock=clock,
        random=random,
    )
    return Fleet(
        store,
        maker,
        unresponsive_after=60.0,
        unreachable_after=60.0,
        clock=clock,
        random=random,
    )


def test_unknown_agent_is_not_responsive() -> None:
    fleet = a_fleet(FakeClock())
    fleet.add(Agent("new", "unix:/x", "local", "default"))
    assert fleet.is_responsive("new")  # it may still report
    assert fleet.is_responsive(None)  # no host has been chosen
    assert not fleet.is_responsive("unknown")


def test_revision_of_a_place_grows_with_the_health_of_its_hosts_and_not_with_their_load() -> None:
    fleet = a_fleet(FakeClock())
    fleet.add(Agent("h", "unix:/x", "local", "default"))
    host = fleet.host("h")
    assert host is not None

    def revision_after(**changes: Any) -> int:
        host.state.apply(WatchMessage("life", 1, replace(HOST, **changes)), 0.0)
        return fleet.revision_of("local", "default")

    host.state.note_reconciled()
    before = revision_after()
    assert revision_after(reserved=Resources(1, 1)) == before
    drained = revision_after(drain=Drain(1, draining=True))
    assert drained > before
    assert revision_after(drain=Drain(1, draining=True)) == drained
    assert revision_after(drain=Drain(2, draining=False)) > drained
    assert fleet.revision_of("elsewhere", "default") == 0
