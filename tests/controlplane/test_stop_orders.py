"""The fleet sends stop orders when they are committed, and after each snapshot of their host."""

from typing import Any

import pytest

from controlplane.domain.access.audit import Actor
from controlplane.domain.sessions.stop_orders import StopCause
from controlplane.storage.tables.hosts.conditions import write_reported
from controlplane.storage.tables.sessions.session_queries import has_row
from controlplane.storage.tables.sessions.sessions import request_stop
from controlplane.storage.tables.sessions.stop_orders import order_stop, pending_stops
from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.system import (
    System,
    assert_error,
    eventually,
    eventually_equals,
)
from tests.support.controlplane.transactions import Go, intercept
from tests.support.hold import Hold

pytestmark = pytest.mark.system(application={})

PENDING = "SELECT internal_id FROM stop_order WHERE confirmed_ms IS NULL"


async def order(system: System, internal_id: str) -> None:
    store = system.control_plane.store
    await store.run(order_stop, "a0", internal_id, StopCause.UNANSWERED, now=1)


async def confirmed(system: System) -> None:
    await eventually_equals(lambda: system.rows(PENDING), [])


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("IMAGE_CANNOT_RUN", 420),
        ("INVALID_ARGUMENT", 422),
    ],
)
async def test_start_that_its_host_has_refused_leaves_no_order(
    system: System, reason: str, status: int
) -> None:
    system.agent.before_start = refusing(reason)
    assert_error(await system.start(id="x"), status)
    assert system.agent.started
    assert await system.rows("SELECT * FROM session") == []
    assert await system.rows("SELECT * FROM stop_order") == []


async def test_order_is_sent_when_it_is_committed(system: System) -> None:
    await order(system, "lost")
    await confirmed(system)
    assert system.agent.stopped == ["lost"]


async def test_order_is_sent_to_a_host_that_looks_silent_while_its_report_is_written(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream goes on, so that no snapshot follows."""
    writing = Hold()

    async def held(go: Go) -> Any:
        await writing()
        return await go()

    (await system.start(id="x")).expect(201)
    (session,) = system.agent.live
    intercept(monkeypatch, write_reported, held)
    system.agent.change(session.internal_id, detail="changed")
    await writing.reached.wait()
    system.control_plane.fleet.unreachable_after = -1.0
    await order(system, "lost")
    await confirmed(system)
    assert system.agent.stopped == ["lost"]
    writing.set()


async def test_order_waits_until_its_host_reports(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []

    async def note(go: Go) -> Any:
        begun.append(await go())
        return begun[-1]

    link = system.link()
    await system.agent.stop()
    await eventually(lambda: not link.watch.is_following)
    intercept(monkeypatch, has_row, note)
    await order(system, "lost")
    await system.read("/operator/agent/a0")
    assert begun == [], "no call has begun"
    await system.agent.start()
    await confirmed(system)
    assert system.agent.stopped == ["lost"]


async def test_order_of_another_program_is_sent(system: System) -> None:
    """The change that follows names no key."""
    await system.rows("INSERT INTO stop_order VALUES ('lost', 'a0', 'unanswered', 0, NULL)")
    await confirmed(system)
    assert system.agent.stopped == ["lost"]


async def test_order_is_repeated_until_its_host_confirms(system: System) -> None:
    asked = Hold()
    asked.set()

    async def refuse(request: Any, context: Any) -> None:
        await asked()
        await refusing("ENGINE_TIMEOUT")(request, context)

    system.agent.before_stop = refuse
    await order(system, "lost")
    await asked.reached.wait()
    store = system.control_plane.store
    assert await store.run(pending_stops, "a0") == ["lost"]
    system.agent.before_stop = None
    await confirmed(system)
    assert system.agent.stopped == ["lost"]


async def test_requested_stop_is_sent_by_the_next_control_plane(system: System) -> None:
    assert (await system.start(id="x")).status == 201
    store = system.control_plane.store
    actor = Actor("of a control plane that died")
    assert await store.run(request_stop, "alice", "x", actor=actor, now=1) is not None
    await system.restart()
    await system.becomes("x", "exited")
    await eventually_equals(lambda: system.rows("SELECT 1 FROM stop_order"), [])
