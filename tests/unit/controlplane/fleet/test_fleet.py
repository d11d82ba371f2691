from random import Random
from typing import Any, cast

from controlplane.fleet.fleet import Fleet
from controlplane.storage.tables.fleet import AgentRow
from tests.support.fake_clock import FakeClock
from tiltyard.runtime.clock import Clock


def a_fleet(clock: Clock) -> Fleet:
    """A fleet that has no database and calls no host."""
    nothing = cast("Any", None)
    return Fleet(
        nothing,
        nothing,
        dial=lambda _: nothing,
        login_for=nothing,
        unresponsive_after=60.0,
        unreachable_after=60.0,
        lost_after=3600.0,
        clock=clock,
        random=Random(1),
    )


def test_unknown_agent_is_not_responsive() -> None:
    fleet = a_fleet(FakeClock())
    fleet.add(AgentRow("new", "unix:/x", "local", "default"))
    assert fleet.is_responsive("new")  # it may still report
    assert fleet.is_responsive(None)  # no host has been chosen
    assert not fleet.is_responsive("unknown")
