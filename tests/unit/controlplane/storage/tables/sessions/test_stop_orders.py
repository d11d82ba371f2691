"""Stop orders: who gives them, and what remains of them once their hosts have confirmed."""

from dataclasses import replace
from typing import Any

import pytest

from controlplane.domain.access.audit import Actor
from controlplane.domain.hosts.contract import TicketContents
from controlplane.domain.sessions.adoption import Verdict
from controlplane.domain.sessions.stop_orders import StopCause
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.hosts.contact import lose
from controlplane.storage.tables.sessions.reports import Reporter, write_all, write_stopped
from controlplane.storage.tables.sessions.session_ends import end_stopped
from controlplane.storage.tables.sessions.sessions import (
    begin_attempt,
    end_attempt,
    request_stop,
    reserve,
)
from controlplane.storage.tables.sessions.stop_orders import (
    pending_stops,
    remove_confirmed,
)
from tests.unit.controlplane.fleet.host.test_state import SESSION
from tests.unit.controlplane.storage.tables.sessions.test_claims import cold, rows
from tests.unit.controlplane.storage.tables.test_noted_changes import ATTEMPT, reported_end
from tiltyard.contract import Identity
from tiltyard.runtime.clock import to_ms

NOW = 100.0
BY = Reporter("h", lambda *_: TicketContents(90_000, 1, 1), NOW, keep_ended=50.0)
RUNNING = replace(SESSION, internal_id="i", identity=cold("x").identity)
ORDERS = "SELECT internal_id, agent, why, confirmed_ms FROM stop_order"


@pytest.fixture
async def started(store: Store) -> Store:
    """A store with the row of a start whose host has not answered yet."""
    await store.run(reserve, cold("x"), first=ATTEMPT)
    return store


async def mark(store: Store) -> None:
    assert await store.run(request_stop, "alice", "x", actor=Actor("token"), now=NOW) is not None


async def report(store: Store, **changes: Any) -> Verdict:
    session = replace(RUNNING, **changes)
    return (await store.run(write_all, BY, [session]))[session.internal_id]


async def test_stop_of_a_session_is_ordered_with_its_request(started: Store) -> None:
    await report(started)
    await mark(started)
    await mark(started)
    assert await rows(started, ORDERS) == [("i", "h", StopCause.REQUESTED, None)]


async def test_stop_of_a_start_is_ordered_with_its_confirmation(started: Store) -> None:
    await mark(started)
    assert await rows(started, ORDERS) == []
    assert await report(started) is Verdict.STOP_REQUESTED
    assert await rows(started, ORDERS) == [("i", "h", StopCause.REQUESTED, None)]


async def test_requested_stop_goes_to_the_session_that_takes_over_the_id(started: Store) -> None:
    await report(started)
    await mark(started)
    identity = Identity("alice", "x", "game", "v1", "local", {})
    later = {"internal_id": "later", "identity": identity, "create_time": 99.0}
    assert await report(started, **later) is Verdict.STOP_REQUESTED
    assert sorted(await rows(started, ORDERS)) == [
        ("i", "h", StopCause.REQUESTED, None),
        ("later", "h", StopCause.REQUESTED, None),
    ]


async def test_end_of_a_session_leaves_the_order_to_the_answer(started: Store) -> None:
    await report(started)
    await mark(started)
    await started.run(write_all, BY, [reported_end(RUNNING)])
    assert await started.run(pending_stops, "h") == ["i"]
    await started.run(write_stopped, BY, reported_end(RUNNING))
    assert await rows(started, ORDERS) == []


async def test_confirmed_order_without_a_row_is_kept_as_long_as_an_ended_session(
    started: Store,
) -> None:
    attempt = ATTEMPT._replace(is_unanswered=True)
    await started.run(end_attempt, "alice", "x", attempt, now=NOW)
    assert await started.run(pending_stops, "h") == ["i"]
    await started.run(end_stopped, "h", "i", NOW)
    assert await started.run(pending_stops, "h") == []
    assert await rows(started, ORDERS) == [("i", "h", StopCause.UNANSWERED, to_ms(NOW))]
    assert await report(started) is Verdict.STOP
    await started.run(remove_confirmed, NOW)
    assert await rows(started, ORDERS)
    await started.run(remove_confirmed, NOW + 1)
    assert await rows(started, ORDERS) == []


async def test_confirmation_of_another_host_counts_for_nothing(started: Store) -> None:
    attempt = ATTEMPT._replace(is_unanswered=True)
    await started.run(end_attempt, "alice", "x", attempt, now=NOW)
    await started.run(end_stopped, "g", "i", NOW)
    assert await started.run(pending_stops, "h") == ["i"]


async def test_sessions_of_a_lost_host_are_to_be_stopped_there(started: Store) -> None:
    await report(started)
    await started.run(reserve, cold("starting"))
    second = ATTEMPT._replace(internal_id="j")
    await started.run(begin_attempt, "alice", "starting", second, now=NOW)
    await started.run(lose, "h", ["j"], NOW)
    assert await rows(started, ORDERS) == [("i", "h", StopCause.GIVEN_UP, None)]
    await started.run(end_stopped, "h", "i", NOW)
    assert await rows(started, ORDERS) == []  # its row has ended, and stops what is reported
    assert await report(started) is Verdict.STOP
