"""session.json is made true again where a power cut, a kill or a full disk kept it from that."""

import asyncio
import shutil

import pytest

from agent.sessions.life import ClaimRequest
from agent.state.drain import DrainOrder
from tests.support.agent.hosts import Agent, Host, full_disk, until
from tests.support.agent.pools import a_claim, a_pool, kept_full, ordered, ready, session_json
from tests.support.agent.samples import a_spec, an_id
from tests.support.fake_clock import until_idle
from tiltyard.contract import State

ORDER = DrainOrder(1, draining=True)


@pytest.mark.parametrize(
    "left",
    [
        "",
        "older",
        None,
    ],
)
async def test_it_is_true_again_before_a_restart(agent: Agent, left: str | None) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    public = agent.records.public_dir(session)
    before = (public / "session.json").read_text()
    await asyncio.to_thread(shutil.rmtree, public)
    if left is not None:
        await asyncio.to_thread(public.mkdir)
        (public / "session.json").write_text(left)
    agent.engine.hold("hand_over")
    await agent.fail(session, then=1)
    await agent.engine.held("hand_over")
    assert (public / "session.json").read_text() == before
    agent.engine.release("hand_over")
    await agent.reached(session.internal_id, State.RUNNING)


async def test_claimed_standby_reads_its_claim_although_it_was_notified_before(
    host: Host,
) -> None:
    async with host() as agent:
        async with kept_full(agent):
            await ordered(agent, a_pool(1, claim_signal="SIGUSR1"))
        [standby] = ready(agent)
        path = agent.records.public_dir(standby) / "session.json"
        before = path.read_text()
        claim: ClaimRequest = a_claim()
        await agent.warm_pools.claim(standby.internal_id, claim)
        await until_idle()
        recorded = agent.recorded(standby.internal_id).claim
        assert recorded is not None
        assert recorded.notified
        path.write_text(before)
    async with host() as agent:
        await until(lambda: session_json(agent, standby)["id"] == claim.identity.session_id)


async def test_next_agent_publishes_a_drain_that_sessions_have_missed(host: Host) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec())
        with full_disk("publish"):  # as if it was killed before
            await agent.sessions.drains.order(ORDER)
        assert session_json(agent, session)["draining"] is False
    async with host() as agent:
        await until(lambda: session_json(agent, session)["draining"] is True)


async def test_repeated_drain_order_reaches_a_session_that_has_missed_it(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    with full_disk("publish"):
        await agent.sessions.drains.order(ORDER)
    assert session_json(agent, session)["draining"] is False
    await agent.sessions.drains.order(ORDER)
    assert session_json(agent, session)["draining"] is True


async def test_what_is_true_already_is_not_written_again(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    await agent.sessions.drains.order(ORDER)
    path = agent.records.public_dir(session) / "session.json"
    written = path.stat().st_ino
    await agent.sessions.drains.order(ORDER)
    assert path.stat().st_ino == written
