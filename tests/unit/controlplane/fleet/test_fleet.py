"""The fleet in memory."""

from random import Random
from typing import Any, cast

from controlplane.fleet.fleet import Fleet
from controlplane.storage.tables.fleet import AgentRow
from tests.support.fake_clock import FakeClock


def test_unknown_agent_is_not_responsive() -> None:
    nothing = cast("Any", None)
    fleet = Fleet(
        nothing,
        nothing,
        dial=lambda _: nothing,
        login_for=nothing,
        unresponsive_after=5.0,
        unreachable_after=30.0,
        lost_after=60.0,
        clock=FakeClock(),
        random=Random(0),
    )
    fleet.add(AgentRow("new", "unix:/x", "local", "default"))
    assert fleet.is_responsive("new")  # it may still report
    assert fleet.is_responsive(None)  # no host has been chosen
    assert not fleet.is_responsive("unknown")
