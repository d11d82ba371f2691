"""A drained host, by an order of the control plane or on the host itself, in virtual time."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agent.state.drain import DrainOrder
from controlplane.domain.access.callers import Caller
from controlplane.operators.agents import ShownAgent
from tests.flow.small_fleet import OneHost
from tests.support.agent.pools import session_json
from tiltyard.runtime.clock import to_ms

HOUR = 3600
OPERATOR = Caller("", "token", frozenset())
REPORTED_WITHIN = 4.0  # Seconds in which a host that returns has reported and has its orders


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[OneHost]:
    with closing(OneHost(tmp_path)) as made:
        yield made


def order(fleet: OneHost, *, draining: bool) -> None:
    """Order or end a drain through the control plane."""
    fleet.run(fleet.control.agents.set_drain(OPERATOR, "h0", draining=draining))


def order_on_host(fleet: OneHost, *, draining: bool) -> None:
    """Do what `tiltyard-agent drain` and `undrain` do."""
    fleet.run(fleet.box.agent.sessions.drains.order(DrainOrder(0, draining=draining)))
    fleet.wait(1.0)


def shown(fleet: OneHost) -> ShownAgent:
    agent: ShownAgent = fleet.run(fleet.control.agents.agent_named("h0"))
    return agent


def is_drained(fleet: OneHost) -> bool:
    """Return whether the agent itself drains."""
    return fleet.box.agent.reservations.drain.now.draining


@pytest.mark.parametrize(
    "skew",
    [
        0,
        -3 * HOUR,
        3 * HOUR,
    ],
)
def test_drained_host_notifies_its_games_and_stops_them_at_the_deadline(
    tmp_path: Path, skew: int
) -> None:
    """Even if its wall clock is wrong."""
    with closing(OneHost(tmp_path, skew=skew)) as fleet:
        agent = fleet.box.agent
        fleet.loop.spawn(fleet.box, agent.sessions.keep_deadlines(), "deadlines")
        [session] = fleet.box.live
        agents = fleet.control.agents
        ordered = fleet.run(agents.set_drain(OPERATOR, "h0", draining=True, seconds=2 * HOUR))
        assert ordered.draining is True
        assert ordered.drain_pending is False
        assert ordered.drain.deadline is not None
        game_reads = session_json(agent, session)
        assert game_reads["draining"]
        assert game_reads["drain_time"] == to_ms(ordered.drain.deadline + skew)
        fleet.wait(2 * HOUR - 60)
        assert shown(fleet).drain == ordered.drain
        assert fleet.status == "draining"
        assert not fleet.starts("y")
        fleet.wait(120)
        assert fleet.status == "exited"
        assert fleet.rows("SELECT end_reason FROM session WHERE id='x'") == [("drain",)]
        order(fleet, draining=False)
        assert fleet.starts("y")


@pytest.mark.parametrize("draining", [True, False])
def test_order_given_on_the_host_is_learned_and_survives_restarts(
    fleet: OneHost, *, draining: bool
) -> None:
    if not draining:
        order(fleet, draining=True)
    order_on_host(fleet, draining=draining)
    assert shown(fleet).draining == draining
    assert fleet.status == ("draining" if draining else "running")
    fleet.crash()
    fleet.restart()
    fleet.run(fleet.box.kill())
    fleet.run(fleet.box.boot())
    fleet.wait(REPORTED_WITHIN)
    assert is_drained(fleet) == draining
    assert shown(fleet).draining == draining
    assert fleet.starts("y") != draining


def test_next_order_of_the_control_plane_replaces_one_given_on_the_host(fleet: OneHost) -> None:
    order_on_host(fleet, draining=True)
    order(fleet, draining=False)
    assert not is_drained(fleet)
    order(fleet, draining=True)
    assert is_drained(fleet)
