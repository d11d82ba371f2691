"""Hosts that are drained by an operator: which orders are sent when."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from controlplane.agent_rpc.reports import watch_messages_in
from controlplane.domain.access.audit import Actor
from controlplane.domain.errors import AgentExcessError
from controlplane.domain.hosts.contract import Drain, HostReport
from controlplane.fleet.host import watch
from controlplane.storage.tables.hosts.fleet import order_drain
from tests.support.controlplane.system import Answer, System, assert_error, eventually
from tests.support.fake_clock import BootingClock
from tests.support.hold import Hold
from tiltyard.agent.bounds import MAX_REVISION
from tiltyard.agent.v1 import agent_pb2
from tiltyard.runtime.clock import from_ms, to_ms

HOURS_2_MS = 2 * 3600 * 1000


class Draining(System):
    """A system with the drain calls of an operator."""

    async def ask(self, method: str, path: str, **more: Any) -> Answer:
        return await self.call(method, f"/operator/agent/{path}", **more)

    async def drain(
        self, name: str = "a0", *, method: str = "POST", **body: Any
    ) -> dict[str, Any]:
        return dict((await self.ask(method, f"{name}/drain", json=body)).expect(200).json)

    async def undrain(self) -> dict[str, Any]:
        return await self.drain(method="DELETE")

    async def shown(self, name: str = "a0") -> dict[str, Any]:
        return dict(await self.read(f"/operator/agent/{name}"))

    async def stored(self) -> Drain:
        sql = "SELECT drain_revision, draining, drain_deadline_ms FROM agent WHERE name='a0'"
        ((revision, draining, deadline_ms),) = await self.rows(sql)
        return Drain(revision, bool(draining), from_ms(deadline_ms))

    def known(self) -> Drain:
        """The newest order in the memory of the control plane."""
        return self.control_plane.fleet.hosts[0].state.drain

    async def is_acknowledged(self) -> None:
        """Wait until every host has reported the newest order."""
        links = self.control_plane.fleet.hosts
        await eventually(
            lambda: all(link.state.reconciled and not link.state.drain_pending for link in links)
        )

    async def disconnect(self) -> None:
        """Stop the agent, and forget that it was responsive."""
        await self.agent.stop()
        await self.restart()


pytestmark = pytest.mark.system(kind=Draining, application={})


@pytest.fixture(autouse=True)
def awaited_orders() -> Iterator[None]:
    """Let a drain wait for the answer of its host."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("controlplane.operators.agents.ORDER_WAIT", 60.0)
        yield


async def test_drained_host_gets_no_sessions_until_undrained(system: Draining) -> None:
    assert (await system.start(id="x")).status == 201
    before = to_ms(system.control_plane.clock.time())
    shown = await system.drain(deadline="2h")
    after = to_ms(system.control_plane.clock.time())
    (order,) = system.agent.drains
    assert order.draining
    assert order.revision >= before
    deadline_ms = order.deadline_time.ToMilliseconds()
    assert before <= deadline_ms - HOURS_2_MS <= after
    assert HOURS_2_MS - (after - before) <= order.remaining.ToMilliseconds() <= HOURS_2_MS
    assert shown["draining"] is True
    assert shown["drainDeadline"] == deadline_ms
    assert not shown["drainPending"]
    assert shown["sessions"] == 1
    assert await system.status_of("x") == "draining"
    assert_error(await system.start(), 420)
    assert not (await system.undrain())["draining"]
    assert await system.status_of("x") == "running"
    assert (await system.start()).status == 201
    assert [drain.draining for drain in system.agent.drains] == [True, False]
    assert system.agent.drains[1].revision > order.revision
    by = (system.operator_id, "a0")
    assert await system.events("agent.%drain%", "kind, actor, object, data") == [
        ("agent.draining", *by, f'{{"deadline": {deadline_ms}}}'),
        ("agent.undrained", *by, "{}"),
    ]


async def test_a_revoked_agent_cannot_be_drained(system: Draining) -> None:
    await system.add_agent("stolen")
    await system.rows("UPDATE agent SET id=name WHERE name='stolen'")
    assert (await system.ask("POST", "stolen/revoke")).status == 200
    for method in ("POST", "DELETE"):
        assert_error(await system.ask(method, "stolen/drain", json={}), 409)
    assert await system.stored() == Drain()
    assert not system.agent.drains


@pytest.mark.system(kind=Draining, agents=2, in_order=True, application={})
async def test_placement_excludes_a_host_before_it_acknowledges_its_drain(
    system: Draining,
) -> None:
    drained, other = system.agents
    answer = drained.before_drain = Hold()
    draining = asyncio.create_task(system.drain(drained.name), name="drain")
    await answer.reached.wait()
    for _ in range(8):
        assert (await system.start()).status == 201
    assert len(other.started) == 8
    assert (await system.shown(drained.name))["drainPending"]
    answer.set()
    assert not (await draining)["drainPending"]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("draining", [True, False])
async def test_unresponsive_host_gets_its_order_on_its_return(
    system: Draining, *, draining: bool, restarted: bool
) -> None:
    if not draining:
        await system.drain()
    await system.disconnect()
    shown = await (system.drain(deadline="2h") if draining else system.undrain())
    assert shown["draining"] == draining
    assert shown["drainPending"] is True
    if restarted:
        await system.restart()
        assert (await system.shown())["drainPending"]
    await system.agent.start()
    await system.is_acknowledged()
    assert system.agent.host.draining == draining
    assert (await system.shown())["draining"] == draining
    assert (await system.start()).status == (420 if draining else 201)


@pytest.mark.parametrize("ordered_again", [False, True])
async def test_a_wrong_clock_after_boot_orders_no_remaining_time(
    system: Draining, *, ordered_again: bool
) -> None:
    await system.disconnect()
    await system.drain(deadline="2h")
    system.clock = clock = BootingClock(wall_ahead=86_400.0)
    await system.restart()
    await system.agent.start()
    await eventually(lambda: system.control_plane.fleet.hosts[0].state.reconciled)
    assert not system.agent.drains
    if ordered_again:  # by the clock that the remaining time is read by
        await system.drain(deadline="2h")
    else:
        clock.wall_ahead = 0.0
        clock.synchronised = True
    await system.is_acknowledged()
    assert system.agent.drains[0].remaining.ToMilliseconds() > HOURS_2_MS - 60_000


async def test_order_is_sent_again_after_a_lost_answer(system: Draining) -> None:
    taken = asyncio.Event()

    async def lose(request: Any, context: Any) -> None:
        system.agent.host.drain_revision = request.revision
        system.agent.host.draining = True
        system.agent.before_drain = None
        taken.set()
        await context.abort(14, "lost")

    system.agent.before_drain = lose
    await system.drain()
    assert taken.is_set()
    await system.is_acknowledged()
    assert {order.revision for order in system.agent.drains} == {system.known().revision}


@pytest.mark.parametrize("draining", [True, False])
async def test_drain_ordered_on_the_host_is_learned(system: Draining, *, draining: bool) -> None:
    if not draining:
        await system.drain()
    orders = len(system.agent.drains)
    system.agent.change_host(draining=draining)
    await eventually(lambda: system.known().draining == draining)
    await system.agent.restart()
    await system.restart()
    assert (await system.shown())["draining"] == draining
    assert await system.stored() == system.known()
    assert len(system.agent.drains) == orders
    assert (await system.start()).status == (420 if draining else 201)
    await system.undrain()  # of both
    assert not system.agent.host.draining


async def test_host_that_lost_its_disk_gets_its_order_again(system: Draining) -> None:
    await system.drain()
    await system.agent.stop()
    system.agent.host.draining = False
    system.agent.host.drain_revision = 0
    await system.agent.restart()
    await eventually(lambda: [order.draining for order in system.agent.drains] == [True, True])


async def test_order_after_a_restore_exceeds_the_revision_of_the_host(system: Draining) -> None:
    await system.drain(deadline="2h")
    ahead = system.known().revision + 10**12  # as if by a clock years ahead
    await system.agent.stop()
    system.agent.host.drain_revision = ahead
    await system.rows("UPDATE agent SET drain_revision=5, draining=0, drain_deadline_ms=NULL")
    await system.restart()
    await system.agent.start()
    await eventually(lambda: system.known().revision == ahead)
    await system.is_acknowledged()
    assert (await system.shown())["draining"]  # not undrained
    assert len(system.agent.drains) == 1
    assert_error(await system.start(), 420)
    assert not (await system.undrain())["drainPending"]
    assert system.agent.drains[1].revision == ahead + 1
    assert (await system.start()).status == 201


@pytest.mark.parametrize("draining", [True, False])
async def test_restored_order_holds_only_if_newer(system: Draining, *, draining: bool) -> None:
    await system.drain()
    newest = system.known().revision
    await system.disconnect()
    await system.rows("UPDATE agent SET drain_revision=?, draining=0", newest - 1000)
    await system.restart()
    if not draining:
        assert (await system.undrain())["drainPending"]
    await system.agent.start()
    await system.is_acknowledged()
    assert system.agent.host.draining == draining
    revisions = {order.revision for order in system.agent.drains}  # an answer may be lost
    assert len(revisions) == (1 if draining else 2)


async def test_removed_agent_leaves_no_drain_to_its_successor(system: Draining) -> None:
    await system.drain(deadline="2h")
    removed = system.agents.pop()
    await system.restart()  # no longer declared in the settings file
    assert (await system.ask("DELETE", removed.name)).status == 204
    assert await system.stored() == Drain()


async def test_impossible_revision_is_rejected(
    system: Draining, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(watch.PAUSES, AgentExcessError, 0.02)
    system.agent.change_host(drain_revision=MAX_REVISION + 1, draining=True)
    [link] = system.control_plane.fleet.hosts
    reported_at = link.state.reported_at
    system.agent.change_host(drain_revision=0, draining=False)
    await eventually(lambda: link.state.reported_at != reported_at)
    assert await system.stored() == Drain()


async def test_orders_in_the_same_millisecond_stay_in_order(system: Draining) -> None:
    store = system.control_plane.store
    drains = [
        await store.run(order_drain, "a0", Drain(0, draining), actor=Actor("token"), now=1.0)
        for draining in (True, False)
    ]
    assert [drain.revision for drain in drains] == [1000, 1001]


def test_deadline_survives_the_round_trip() -> None:
    """The agent stores it as a float in seconds."""
    host = agent_pb2.Host(format=1, draining=True, drain_revision=1)
    host.drain_time.FromNanoseconds(1767225600_123 * 10**6 - 300)
    [message] = watch_messages_in(agent_pb2.WatchResponse(host=host), 0)
    assert isinstance(message.event, HostReport)
    assert message.event.drain == Drain(1, True, 1767225600.123)
