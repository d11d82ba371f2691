import asyncio
import itertools
from typing import Any

import pytest

from agent.domain.errors import DrainingError, InvalidArgumentError, StaleRevisionError
from agent.domain.sessions.session import Session
from agent.rpc import wire
from agent.state.drain import DrainOrder
from tests.support.agent.hosts import Agent, Host, until
from tests.support.agent.pools import session_json
from tests.support.agent.samples import a_spec, an_id
from tests.support.tasks import let_go
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.contract import EndReason, State


def _published(agent: Agent, session: Session) -> tuple[Any, Any]:
    """The drain in session.json."""
    found = session_json(agent, session)
    return found["draining"], found["drain_time"]


def _drained(agent: Agent) -> bool:
    return agent.reservations.drain.now.draining


async def test_repeated_start_joins_on_a_drained_host(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    await agent.sessions.drains.order(DrainOrder(1, draining=True))
    assert (await agent.sessions.start(session.internal_id, a_spec())).state is State.RUNNING


async def test_session_json_has_the_drain(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    assert _published(agent, session) == (False, None)
    end = agent.clock.time() + 600
    await agent.sessions.drains.order(DrainOrder(1, draining=True, remaining=600))
    assert _published(agent, session) == (True, round(end * 1000))
    await agent.sessions.drains.order(DrainOrder(2, draining=False))
    assert _published(agent, session) == (False, None)
    assert agent.runtime.deadlines.next_due() is None


@pytest.mark.parametrize("step", ["start.reserved", "start.created", "start.saved"])
async def test_session_json_of_a_starting_game_has_the_drain(agent: Agent, step: str) -> None:
    starter = await agent.held_at(step, agent.sessions.start(an_id(), a_spec()))
    await agent.sessions.drains.order(DrainOrder(1, draining=True))
    agent.steps.release(step)
    assert _published(agent, await starter) == (True, None)


async def test_deadline_passes_while_the_agent_is_down_and_the_clock_jumps(host: Host) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec(restart=True))
        await agent.sessions.drains.order(DrainOrder(1, draining=True, remaining=60))
    await host.clock.advance(30)
    host.clock.jump(86400)
    async with host() as agent, agent.timed():
        with pytest.raises(DrainingError):
            await agent.sessions.start(an_id(), a_spec())
        await host.clock.advance(29)
        assert agent.now(session.internal_id).state is State.RUNNING
    host.clock.jump(-10 * 86400)
    await host.clock.advance(60)
    async with host() as agent, agent.timed():
        await host.clock.advance(1)
        assert (await agent.reached(session.internal_id)).session.end_reason is EndReason.DRAIN


async def test_session_found_after_the_deadline_is_stopped(host: Host) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec())
        await agent.sessions.drains.order(DrainOrder(1, draining=True, remaining=60))
        await agent.lose_record(session.internal_id)
    await host.clock.advance(61)
    async with host(reconcile=False) as agent, agent.timed():
        await host.clock.advance(1)  # the deadline passes before the session is known
        await agent.pass_over()
        assert agent.now(session.internal_id).state is State.RUNNING
        await host.clock.advance(10)
        life = await agent.reached(session.internal_id)
        assert life.session.end_reason is EndReason.DRAIN


async def test_returns_the_time_by_which_the_host_is_empty(agent: Agent) -> None:
    revisions = itertools.count(1)

    async def drained(limit: float | None = None) -> tuple[float | None, int]:
        """Seconds until the host is empty, and its number of sessions."""
        set_drain = agent.sessions.drains.order
        now = agent.clock.time()
        empty, live = await set_drain(DrainOrder(next(revisions), draining=True, remaining=limit))
        return None if empty is None else round(empty - now, 3), live

    async def open_again() -> None:
        await agent.sessions.drains.order(DrainOrder(next(revisions), draining=False))

    assert await drained() == (0.0, 0)
    await open_again()
    for ttl in (600.0, 60.0):
        await agent.sessions.start(an_id(), a_spec(ttl=ttl))
    assert await drained() == (600.0, 2)
    assert await drained(90.0) == (90.0, 2)
    assert await drained(3600.0) == (600.0, 2)
    await open_again()
    endless = await agent.sessions.start(an_id(), a_spec())
    assert await drained() == (None, 3)
    assert await drained(3600.0) == (3600.0, 3)
    await agent.sessions.stop(endless.internal_id, EndReason.STOPPED)
    assert await drained() == (600.0, 2)


async def test_stale_order_is_rejected_also_after_a_restart(host: Host) -> None:
    async with host() as agent:
        await agent.sessions.drains.order(DrainOrder(7, draining=True))
    async with host() as agent:
        with pytest.raises(StaleRevisionError, match="7 is applied already"):
            await agent.sessions.drains.order(DrainOrder(6, draining=False))
        await agent.sessions.drains.order(DrainOrder(7, draining=False))  # a repeat
        assert _drained(agent)
        # An operator's order holds until the control plane's next one.
        await agent.sessions.drains.order(DrainOrder(0, draining=False))
        assert not _drained(agent)
        await agent.sessions.drains.order(DrainOrder(7, draining=True))
        assert not _drained(agent)
        await agent.sessions.drains.order(DrainOrder(8, draining=True))
        assert _drained(agent)


async def test_unreadable_order_drains_nothing(host: Host) -> None:
    async with host() as agent:
        await agent.sessions.drains.order(DrainOrder(1, draining=True))
    (host.folder / "state" / "drain.json").write_text("{")
    async with host() as agent:
        assert not _drained(agent)
        await agent.sessions.start(an_id(), a_spec())


async def test_concurrent_orders_leave_memory_and_disk_equal(host: Host) -> None:
    for first in range(1, 40, 2):
        async with host() as agent:
            orders = [
                agent.sessions.drains.order(DrainOrder(first + 1, draining=False)),
                agent.sessions.drains.order(DrainOrder(first, draining=True)),
            ]
            await asyncio.gather(*orders, return_exceptions=True)
            now = agent.reservations.drain.now
            assert now.revision == first + 1
            assert now.draining is False
            assert await agent.records.load_drain() == now


async def test_order_completes_after_the_caller_disconnects(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    order = asyncio.create_task(agent.sessions.drains.order(DrainOrder(1, draining=True)))
    await asyncio.sleep(0)
    await let_go(order)
    await until(lambda: _drained(agent))
    await until(lambda: _published(agent, session) == (True, None))
    assert (await agent.records.load_drain()).draining


HOUR = 3600


@pytest.mark.parametrize(
    "skew",
    [
        -3 * HOUR,
        3 * HOUR,
    ],
)
async def test_later_of_both_clocks_counts_after_a_reboot(host: Host, skew: int) -> None:
    async with host() as agent:
        ordered_time = host.clock.time() + 2 * HOUR - skew
        await agent.sessions.drains.order(DrainOrder(1, True, 2 * HOUR, ordered_time))
    host.clock.reboot()
    async with host() as agent:
        due = agent.runtime.deadlines.next_due()
        assert due == host.clock.boottime() + 2 * HOUR + max(0, -skew)


@pytest.mark.parametrize(
    ("field", "seconds"),
    [
        ("remaining", -1),
        ("remaining", 101 * 8760 * HOUR),
        ("deadline_time", -1),
        ("deadline_time", 2**62),
    ],
)
def test_rejects_deadline_out_of_range(field: str, seconds: int) -> None:
    request = pb.SetDrainRequest(revision=1, draining=True)
    request.remaining.FromSeconds(HOUR)
    getattr(request, field).seconds = seconds
    with pytest.raises(InvalidArgumentError, match=field):
        wire.drain_order_from_proto(request)
