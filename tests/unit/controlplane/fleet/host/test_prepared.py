"""Prepared containers of a host, and the starts in flight that count on them."""

from dataclasses import replace
from typing import cast

import pytest

from controlplane.agent_rpc.client import AgentClient
from controlplane.domain.hosts.agents import Agent
from controlplane.domain.hosts.contract import Answer, WatchMessage
from controlplane.domain.hosts.host_events import HostEvent, SpareChanged
from controlplane.domain.placement.placement import Wanted
from controlplane.fleet.host.state import HostState
from tests.unit.controlplane.domain.placement.test_placement import HOST, IMAGE
from tests.unit.controlplane.fleet.host.test_state import OF_ALICE, SESSION, view
from tiltyard.contract import PreparedShape, Resources

SHAPE = "00ff"
OF_SHAPE = Wanted(IMAGE, Resources(2, 3), (), ("alice", "game"), SHAPE)


@pytest.fixture
def link() -> HostState:
    made = HostState(Agent("h", "unix:/h", "local", "default"), cast("AgentClient", None))
    made.note_reconciled()
    return made


def kept(count: int, *starting: str, sequence: int = 9) -> WatchMessage:
    """A report of this many prepared containers, which counts these starts."""
    shapes = {SHAPE: PreparedShape(SHAPE, IMAGE, count)}
    host = replace(HOST, prepared=shapes, starting=frozenset(starting))
    return WatchMessage("life", sequence, host)


def test_start_with_a_prepared_container_takes_no_slot(link: HostState) -> None:
    link.apply(kept(2), 1.0)
    link.hold("i", OF_SHAPE)
    assert view(link).starting == 0
    assert view(link).in_flight == 1
    assert view(link).held == Resources(2, 3)
    assert view(link).spare(SHAPE) == 1


def test_two_starts_do_not_count_on_one_prepared_container(link: HostState) -> None:
    link.apply(kept(1), 1.0)
    link.hold("i", OF_SHAPE)
    link.hold("j", OF_SHAPE)
    assert view(link).starting == 1
    assert view(link, "alice").starting_of_account == 1
    assert view(link).spare(SHAPE) == 0


def test_start_of_another_shape_takes_a_slot(link: HostState) -> None:
    link.apply(kept(1), 1.0)
    link.hold("i", replace(OF_SHAPE, shape="11ee"))
    assert view(link).starting == 1
    assert view(link).spare(SHAPE) == 1


def test_start_without_a_shape_takes_a_slot(link: HostState) -> None:
    link.apply(kept(1), 1.0)
    link.hold("i", OF_ALICE)
    assert view(link).starting == 1


def test_prepared_container_lets_a_start_begin_without_a_slot(link: HostState) -> None:
    link.apply(kept(1, "a", "b"), 1.0)
    assert not link.has_start_slot()
    assert link.takes_starts
    assert link.can_begin(OF_SHAPE)
    assert not link.can_begin(OF_ALICE)


def test_host_without_slot_and_prepared_container_takes_no_starts(link: HostState) -> None:
    link.apply(WatchMessage("life", 9, replace(HOST, starting=frozenset({"a", "b"}))), 1.0)
    assert not link.takes_starts
    assert not link.can_begin(OF_SHAPE)


def test_start_with_a_prepared_container_that_its_host_counts_takes_no_slot(
    link: HostState,
) -> None:
    link.apply(kept(2), 1.0)
    link.hold("i", OF_SHAPE)
    link.apply(kept(1, "i", sequence=10), 2.0)
    assert view(link).starting == 0
    assert view(link).in_flight == 0


def test_prepared_container_that_its_host_counts_as_taken_is_not_counted_twice(
    link: HostState,
) -> None:
    link.apply(kept(2), 1.0)
    link.hold("i", OF_SHAPE)
    link.apply(kept(1, "i", sequence=10), 2.0)
    assert view(link).spare(SHAPE) == 1


def test_refused_start_returns_its_prepared_container(link: HostState) -> None:
    link.apply(kept(1), 1.0)
    link.hold("i", OF_SHAPE)
    link.give_back("i")
    assert view(link).spare(SHAPE) == 1


def test_answered_start_counts_on_its_prepared_container_until_the_next_report(
    link: HostState,
) -> None:
    link.apply(kept(2), 1.0)
    link.hold("i", OF_SHAPE)
    link.answered("i", Answer(SESSION, "life"))
    assert view(link).spare(SHAPE) == 1
    link.apply(kept(1, "i", sequence=10), 2.0)
    assert view(link).spare(SHAPE) == 1
    assert link.in_flight == 0


def test_unanswered_start_without_its_prepared_container_takes_a_slot_once_its_call_ended(
    link: HostState,
) -> None:
    """The container was discarded meanwhile, and the host starts the session the ordinary way."""
    link.apply(kept(1), 1.0)
    link.hold("i", OF_SHAPE)
    link.apply(kept(0, "i", sequence=10), 2.0)
    link.give_back("i")
    link.apply(kept(0, "i", sequence=11), 3.0)
    assert view(link).starting == 1


def test_host_that_keeps_less_than_starts_count_on_has_none_to_spare(link: HostState) -> None:
    link.apply(kept(2), 1.0)
    link.hold("i", OF_SHAPE)
    link.hold("j", OF_SHAPE)
    link.apply(kept(1, sequence=10), 2.0)
    assert view(link).spare(SHAPE) == 0


def test_observers_are_told_of_a_prepared_container_that_a_refused_start_returns(
    link: HostState,
) -> None:
    link.apply(kept(1), 1.0)
    link.hold("i", OF_SHAPE)
    events: list[HostEvent] = []
    link.observers.append(events.append)
    link.give_back("i")
    assert SpareChanged() in events
