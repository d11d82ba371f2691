"""Hosts that are drained by an operator: what is told to whom, and when."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.agent_rpc.wire import MAX_REVISION, watch_message_in
from controlplane.domain.contract import Drain, HostReported
from controlplane.storage.engine.store import Actor
from controlplane.storage.tables.fleet import DrainOrder, order_drain
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.controlplane.system import Answer, System, assert_error, eventually
from tiltyard.agent.v1 import agent_pb2
from tiltyard.runtime.clock import to_ms

HOURS_2_MS = 2 * 3600 * 1000


class Draining(System):
    """The hosts are drained by what is asked here."""

    async def ask(self, method: str, path: str, **more: Any) -> Answer:
        return await self.call(method, f"/operator/agent/{path}", **more)

    async def drain(self, name: str = "a0", **body: Any) -> dict[str, Any]:
        answer = await self.ask("POST", f"{name}/drain", json=body)
        assert answer.status == 200, answer.text
        return dict(answer.json)

    async def undrain(self, name: str = "a0") -> dict[str, Any]:
        answer = await self.ask("DELETE", f"{name}/drain")
        assert answer.status == 200, answer.text
        return dict(answer.json)

    async def shown(self, name: str = "a0") -> dict[str, Any]:
        return dict((await self.ask("GET", name)).json)

    async def stored(self) -> Drain:
        sql = "SELECT drain_revision, draining, drain_deadline_ms FROM agent WHERE name='a0'"
        ((revision, draining, deadline_ms),) = await self.rows(sql)
        return Drain(revision, bool(draining), deadline_ms)

    def known(self, name: str = "a0") -> Drain:
        """What the control plane holds for the newest order."""
        link = self.control_plane.fleet.host(name)
        assert link is not None
        return link.drain

    async def is_told(self) -> None:
        """Wait until every host says that it has the newest order."""
        links = self.control_plane.fleet.hosts
        await eventually(lambda: all(link.reconciled and not link.drain_pending for link in links))

    async def silence(self, agent: FakeAgent) -> None:
        """Have an agent gone, and known to be."""
        await agent.stop()
        await self.restart()


@pytest.fixture
async def system(tmp_path: Path) -> AsyncIterator[Draining]:
    async with Draining(tmp_path) as running:
        await running.make_application()
        yield running


async def test_a_drained_host_is_told_and_gets_nothing_until_that_is_called_off(
    system: Draining,
) -> None:
    assert (await system.start(id="x")).status == 201
    before = to_ms(system.control_plane.clock.time())
    shown = await system.drain(deadline="2h")
    after = to_ms(system.control_plane.clock.time())
    (told,) = system.agent.drains
    assert told.draining
    assert told.revision >= before
    deadline_ms = told.deadline_time.ToMilliseconds()
    assert before <= deadline_ms - HOURS_2_MS <= after
    assert HOURS_2_MS - (after - before) <= told.remaining.ToMilliseconds() <= HOURS_2_MS
    assert (shown["draining"], shown["drainDeadline"]) == (True, deadline_ms)
    assert not shown["drainPending"]
    assert shown["sessions"] == 1
    assert await system.status_of("x") == "draining"
    assert_error(await system.start(), 420)
    assert not (await system.undrain())["draining"]
    assert await system.status_of("x") == "running"
    assert (await system.start()).status == 201
    assert [order.draining for order in system.agent.drains] == [True, False]
    assert system.agent.drains[1].revision > told.revision
    actor = system.operator_token.split("_")[1]
    sql = "SELECT kind, actor, object, data FROM event WHERE kind LIKE 'agent.%drained'"
    assert await system.rows(f"{sql} ORDER BY sequence") == [
        ("agent.drained", actor, "a0", f'{{"deadline": {deadline_ms}}}'),
        ("agent.undrained", actor, "a0", "{}"),
    ]


async def test_who_can_be_drained_and_how(system: Draining) -> None:
    for method in ("POST", "DELETE"):
        assert_error(await system.ask(method, "nobody/drain", json={}), 404)
    for deadline in ("", "soon", "2", "-1h", "9000h", 2):
        refused = await system.ask("POST", "a0/drain", json={"deadline": deadline})
        assert_error(refused, 422, "deadline")
    assert_error(await system.ask("POST", "a0/drain", json={"until": "2h"}), 422, "until")
    await system.add_agent("stolen")
    await system.rows("UPDATE agent SET id=name WHERE name='stolen'")
    assert (await system.ask("POST", "stolen/revoke")).status == 204
    for method in ("POST", "DELETE"):
        assert_error(await system.ask(method, "stolen/drain", json={}), 409)
    assert await system.stored() == Drain()
    assert not system.agent.drains


async def test_placement_leaves_a_host_before_it_has_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.operators.agents.ORDER_WAIT", 60.0)
    system = Draining(tmp_path, agents=2)
    system.prefer(system.agent)
    async with system:
        await system.make_application()
        asked, answer = asyncio.Event(), asyncio.Event()

        async def wait(_: Any, __: Any) -> None:
            asked.set()
            await answer.wait()

        drained, other = system.agents
        drained.before_drain = wait
        draining = asyncio.create_task(system.drain(drained.name), name="drain")
        await asked.wait()
        for _ in range(8):
            assert (await system.start()).status == 201
        assert len(other.started) == 8
        assert (await system.shown(drained.name))["drainPending"]
        answer.set()
        assert not (await draining)["drainPending"]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("draining", [True, False])
async def test_a_host_that_is_silent_is_told_when_it_is_back(
    system: Draining, *, draining: bool, restarted: bool
) -> None:
    if not draining:
        await system.drain()
    await system.silence(system.agent)
    shown = await (system.drain(deadline="2h") if draining else system.undrain())
    assert (shown["draining"], shown["drainPending"]) == (draining, True)
    if restarted:
        await system.restart()
        assert (await system.shown())["drainPending"]
    await system.agent.start()
    await system.is_told()
    assert system.agent.host.draining == draining
    assert (await system.shown())["draining"] == draining
    assert (await system.start()).status == (420 if draining else 201)


async def test_an_answer_that_was_lost_is_asked_for_again(system: Draining) -> None:
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
    await system.is_told()
    assert {order.revision for order in system.agent.drains} == {system.known().revision}


@pytest.mark.parametrize("draining", [True, False])
async def test_what_was_ordered_on_the_host_is_learned_and_not_undone(
    system: Draining, *, draining: bool
) -> None:
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


async def test_a_host_that_lost_its_disk_is_told_again(system: Draining) -> None:
    await system.drain()
    await system.agent.stop()
    system.agent.host.draining, system.agent.host.drain_revision = False, 0
    await system.agent.restart()
    await eventually(lambda: [order.draining for order in system.agent.drains] == [True, True])


async def test_a_database_that_is_older_than_the_host_goes_past_it_with_the_next_order(
    system: Draining,
) -> None:
    await system.drain(deadline="2h")
    ahead = system.known().revision + 10**12  # as if by a clock that was years ahead
    await system.agent.stop()
    system.agent.host.drain_revision = ahead
    await system.rows("UPDATE agent SET drain_revision=5, draining=0, drain_deadline_ms=NULL")
    await system.restart()
    await system.agent.start()
    await eventually(lambda: system.known().revision == ahead)
    await system.is_told()
    assert (await system.shown())["draining"]  # nobody has called that off
    assert len(system.agent.drains) == 1
    assert_error(await system.start(), 420)
    assert not (await system.undrain())["drainPending"]
    assert system.agent.drains[1].revision == ahead + 1
    assert (await system.start()).status == 201


@pytest.mark.parametrize("draining", [True, False])
async def test_an_order_in_an_older_database_counts_only_if_it_was_given_since(
    system: Draining, *, draining: bool
) -> None:
    """Revisions are times, so that one can tell."""
    await system.drain()
    newest = system.known().revision
    await system.silence(system.agent)
    await system.rows("UPDATE agent SET drain_revision=?, draining=0", newest - 1000)
    await system.restart()
    if not draining:
        assert (await system.undrain())["drainPending"]
    await system.agent.start()
    await system.is_told()
    assert system.agent.host.draining == draining
    told = {order.revision for order in system.agent.drains}  # an answer may be lost at its return
    assert len(told) == (1 if draining else 2)


async def test_a_revision_that_nobody_gave_is_not_believed(system: Draining) -> None:
    system.agent.change_host(drain_revision=MAX_REVISION + 1, draining=True)
    link = system.control_plane.fleet.host("a0")
    assert link is not None
    heard = link.reported_at
    system.agent.change_host(drain_revision=0, draining=False)
    await eventually(lambda: link.reported_at != heard)
    assert await system.stored() == Drain()


async def test_two_orders_at_one_moment_have_their_order(system: Draining) -> None:
    store = system.control_plane.store
    drains: list[Drain] = []
    for draining in (True, False):
        order = DrainOrder("a0", draining, None, known_revision=0)
        drains.append(await store.run(order_drain, order, Actor("token"), 1.0))
    assert [drain.revision for drain in drains] == [1000, 1001]


def test_a_deadline_comes_back_as_it_was_told() -> None:
    """The agent has it in seconds, as a float."""
    host = agent_pb2.Host(format=1, draining=True, drain_revision=1)
    host.drain_time.FromNanoseconds(1767225600_123 * 10**6 - 300)
    message = watch_message_in(agent_pb2.WatchResponse(host=host))
    assert isinstance(message.event, HostReported)
    assert message.event.host.drain == Drain(1, True, 1767225600_123)
