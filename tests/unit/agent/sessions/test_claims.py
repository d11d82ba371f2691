import asyncio
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from agent.changes.feed import Changes
from agent.domain import errors
from agent.domain.containers.engine import container_name
from agent.domain.sessions.session import Session
from agent.domain.steps import CLAIM_STEPS
from agent.sessions.claims import checked_request
from agent.sessions.life import ClaimRequest
from agent.state.drain import DrainOrder
from agent.state.record import CLAIMS
from tests.support.agent.hosts import Agent, Host, full_disk
from tests.support.agent.pools import (
    a_claim,
    a_pool,
    kept_full,
    ordered,
    ready,
    session_json,
    standbys,
)
from tests.support.agent.samples import a_spec, an_id
from tests.support.fake_clock import until_idle
from tests.support.hold import held_before
from tiltyard.contract import EndReason, State


async def a_standby(agent: Agent, **changes: Any) -> Session:
    """A ready standby of a pool that is not refilled."""
    async with kept_full(agent):
        await ordered(agent, a_pool(1, **changes))
    return ready(agent)[0]


def claiming(
    agent: Agent, standby: Session, request: ClaimRequest | None = None
) -> asyncio.Task[Session]:
    claim = agent.warm_pools.claim(standby.internal_id, request or a_claim())
    return asyncio.create_task(claim, name="claim")


def signals(agent: Agent, session: Session) -> int:
    """The number of signals to the session's game."""
    return len(agent.engine.program_of(session.container).got)


async def test_claim_makes_a_session_of_the_claimant(agent: Agent) -> None:
    standby = await a_standby(agent, args=("--pool",), restart=True)
    await agent.clock.advance(100)
    now = agent.clock.time()
    session = await agent.warm_pools.claim(standby.internal_id, a_claim(ttl=600.0))
    assert session.internal_id == standby.internal_id
    assert session.process == standby.process
    assert session.ports == standby.ports
    assert session.create_time == standby.create_time
    assert session.spec.identity == a_claim().identity
    assert session.spec.args == ("--pool",)
    assert session.spec.restart is True
    assert session.deadline is not None
    assert session.deadline.expire_time == now + 600
    assert agent.runtime.deadlines.next_due() == session.deadline.boottime
    assert session.is_standby is False
    assert session.restarts is True
    assert session.injected_env["TILTYARD_SESSION_ID"] == "m1"
    read = session_json(agent, session)
    assert read["id"] == "m1"
    assert read["labels"] == {"mode": "duel"}
    assert read["external_id"] == "x-2"
    assert read["standby"] is False
    assert read["request"] == {"map": "ü"}
    assert read["expire_time"] == round((now + 600) * 1000)
    await until_idle()
    claim = agent.now(session.internal_id).claim
    assert claim is not None
    assert claim.notified
    recorded = agent.recorded(session.internal_id).claim
    assert recorded == replace(claim, notified=False)  # there is no signal


@mock.patch("agent.changes.feed.GATHER_SECONDS", 3600.0)
async def test_claims_are_reported_together_and_without_the_host(agent: Agent) -> None:
    async with kept_full(agent):
        await ordered(agent, a_pool(2))
    with agent.runtime.feed.subscribe() as subscription:
        taking = asyncio.create_task(subscription.take(3600.0), name="taking")
        claimed = [await claiming(agent, standby) for standby in ready(agent)]
        await until_idle()
        assert not taking.done()
        agent.runtime.feed.session_changed(claimed[0], host=False)
        taken = await taking
    assert [each.internal_id for each in taken.sessions] == [each.internal_id for each in claimed]
    assert [each.sequence for each in taken.sessions] == [each.sequence for each in claimed]
    assert replace(taken, sessions=()) == Changes()


async def test_repeated_claim_returns_the_session(agent: Agent) -> None:
    standby = await a_standby(agent)
    first = await agent.warm_pools.claim(standby.internal_id, a_claim(ttl=600.0))
    for again in (False, True):
        found = await agent.warm_pools.claim(standby.internal_id, a_claim(ttl=900.0, again=again))
        assert found.deadline == first.deadline
    await agent.sessions.stop(standby.internal_id, EndReason.STOPPED)
    assert (await agent.warm_pools.claim(standby.internal_id, a_claim())).state.ended


async def test_repeated_claim_joins_the_pending_one(agent: Agent) -> None:
    standby = await a_standby(agent)
    first = await agent.held_at("claim.begun", claiming(agent, standby))
    second = claiming(agent, standby)
    first.cancel()  # the claim continues
    await until_idle()
    agent.steps.release("claim.begun")
    assert (await second).spec.identity.session_id == "m1"


async def test_one_of_fifty_concurrent_claims_succeeds(agent: Agent) -> None:
    standby = await a_standby(agent)
    claims = [claiming(agent, standby, a_claim(f"m{number}")) for number in range(50)]
    answers = await asyncio.gather(*claims, return_exceptions=True)
    [won] = [answer for answer in answers if isinstance(answer, Session)]
    refused = [answer for answer in answers if isinstance(answer, errors.StandbyNotClaimableError)]
    assert len(refused) == 49
    found = agent.now(standby.internal_id)
    recorded = agent.recorded(found.internal_id)
    assert found.spec.identity == won.spec.identity
    assert recorded.spec.identity == won.spec.identity
    assert session_json(agent, found)["id"] == won.spec.identity.session_id


async def test_rejects_claim_of_a_session_that_was_never_a_standby(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    with pytest.raises(errors.StandbyNotClaimableError, match="it is not a standby"):
        await agent.warm_pools.claim(session.internal_id, a_claim())


async def test_rejects_claim_of_an_unknown_standby(agent: Agent) -> None:
    with pytest.raises(errors.StandbyNotClaimableError) as refused:
        await agent.warm_pools.claim(an_id(), a_claim())
    assert str(refused.value) == "cannot claim the standby: it is unknown"


async def test_rejects_claim_of_a_standby_that_is_not_ready(agent: Agent) -> None:
    agent.engine.binds_at_once = False
    async with kept_full(agent, a_pool(1)):
        [unready] = standbys(agent)
        claim = claiming(agent, unready)
        await until_idle()
        assert claim.done()
        with pytest.raises(errors.StandbyNotClaimableError, match="it is not ready"):
            await claim


async def test_rejects_claim_of_a_standby_that_its_pool_stops(agent: Agent) -> None:
    standby = await a_standby(agent)
    await agent.warm_pools.set(a_pool(0, revision=2))
    agent.warm_pools.look()
    assert agent.now(standby.internal_id).state is State.RUNNING  # the stop has only been asked
    with pytest.raises(errors.StandbyNotClaimableError, match="it is not running"):
        await agent.warm_pools.claim(standby.internal_id, a_claim())
    await until_idle()


async def test_claim_sends_no_signal_unless_the_pool_has_one(agent: Agent) -> None:
    standby = await a_standby(agent)
    await agent.warm_pools.claim(standby.internal_id, a_claim())
    assert signals(agent, standby) == 0
    assert agent.now(standby.internal_id).state is State.RUNNING


@pytest.mark.parametrize("stopped", [True, False])
async def test_rejects_claim_of_an_ending_standby(agent: Agent, *, stopped: bool) -> None:
    standby = await a_standby(agent)
    name = container_name(standby.internal_id)
    agent.engine.ignores_sigterm.add(name)
    if stopped:
        stop = agent.sessions.stop(standby.internal_id, EndReason.STOPPED)
        stopping = asyncio.create_task(stop, name="stop")
        await until_idle()
    else:
        agent.engine.hold("inspect")
        agent.engine.end(name, 0)
        await agent.engine.held("inspect")  # the engine has not confirmed the end
    claim = agent.warm_pools.claim(standby.internal_id, a_claim())
    claiming_it = asyncio.create_task(claim, name="claim")
    await until_idle()
    if not stopped:
        agent.engine.release("inspect")
    with pytest.raises(errors.StandbyNotClaimableError):
        await claiming_it
    if stopped:
        agent.engine.end(name, 0)
        await stopping
    await until_idle()
    assert agent.now(standby.internal_id).is_standby


async def test_drained_host_accepts_repeated_claims_only(agent: Agent) -> None:
    standby = await a_standby(agent)
    await agent.sessions.drains.order(DrainOrder(1, draining=True))
    with pytest.raises(errors.DrainingError):
        await agent.warm_pools.claim(standby.internal_id, a_claim())
    found = await agent.warm_pools.claim(standby.internal_id, a_claim(again=True))
    assert session_json(agent, found)["draining"]
    async with kept_full(agent):
        assert agent.now(standby.internal_id).state is State.RUNNING


async def test_pending_claim_is_not_stopped_as_surplus(agent: Agent) -> None:
    standby = await a_standby(agent)
    claim = await agent.held_at("claim.begun", claiming(agent, standby))
    async with kept_full(agent, a_pool(0, revision=2)):
        agent.steps.release("claim.begun")
        assert (await claim).state is State.RUNNING
        await until_idle()
        assert agent.now(standby.internal_id).stop_reason is None


async def test_f49_unrecorded_claim_fails(agent: Agent) -> None:
    standby = await a_standby(agent)
    with full_disk("save_claim"), pytest.raises(errors.DiskFullError):
        await agent.warm_pools.claim(standby.internal_id, a_claim())
    assert ready(agent)[0] == standby
    found = await agent.warm_pools.claim(standby.internal_id, a_claim("m2"))
    assert found.spec.identity.session_id == "m2"


async def test_restarted_agent_notifies_a_game_that_was_not_notified(host: Host) -> None:
    async with host() as agent:
        standby = await a_standby(agent, claim_signal="SIGUSR1")
        with full_disk("publish"):
            await agent.warm_pools.claim(standby.internal_id, a_claim())
        await until_idle()
        assert session_json(agent, standby)["standby"] is True
        assert signals(agent, standby) == 0
    async with host() as agent:
        await until_idle()
        assert session_json(agent, standby)["id"] == "m1"
        assert signals(agent, standby) == 1


@pytest.mark.parametrize("step", CLAIM_STEPS)
async def test_f49_agent_killed_at_any_step_of_a_claim(host: Host, step: str) -> None:
    """A repeated claim succeeds and the game is notified."""
    async with host() as agent:
        standby = await a_standby(agent, claim_signal="SIGUSR1")
        (await agent.held_at(step, claiming(agent, standby, a_claim(ttl=600.0)))).cancel()
    await host.clock.advance(60)
    async with host() as agent:
        await until_idle()
        found = agent.now(standby.internal_id)
        assert found.is_standby == (step == "claim.begun")
        if found.is_standby:
            assert session_json(agent, found)["standby"]
        else:
            assert session_json(agent, found)["id"] == "m1"
            with pytest.raises(errors.StandbyNotClaimableError, match="another session"):
                await agent.warm_pools.claim(standby.internal_id, a_claim("m2", again=True))
        again = await agent.warm_pools.claim(standby.internal_id, a_claim(ttl=600.0, again=True))
        assert again.deadline is not None
        passed = 0 if step == "claim.begun" else 60
        assert agent.runtime.deadlines.next_due() == host.clock.boottime() + 600 - passed
        assert session_json(agent, again)["id"] == "m1"
        await until_idle()
        assert signals(agent, standby) == (2 if step == "claim.signalled" else 1)


@pytest.mark.parametrize("is_cut_off", [True, False], ids=["cut off", "zeros"])
async def test_f49_a_claim_whose_line_is_torn_never_was_and_can_be_made(
    host: Host, *, is_cut_off: bool
) -> None:
    """A power cut before the flush loses a claim without an answer, unlike an earlier claim."""
    async with host() as agent:
        async with kept_full(agent):
            await ordered(agent, a_pool(2))
        claimed, torn = (standby.internal_id for standby in ready(agent))
        await agent.warm_pools.claim(claimed, a_claim("m1"))
        journal = agent.records.directory(claimed).parents[1] / CLAIMS
    line = journal.read_bytes()
    rest = bytes(len(line))
    if is_cut_off:
        rest = line.replace(claimed.encode(), torn.encode())[: len(line) // 2]
    journal.write_bytes(line + rest)
    async with host() as agent:
        assert agent.now(claimed).spec.identity.session_id == "m1"
        assert [standby.internal_id for standby in ready(agent)] == [torn]
        await agent.warm_pools.claim(torn, a_claim("m2"))
    async with host() as agent:
        assert agent.now(claimed).spec.identity.session_id == "m1"
        assert agent.now(torn).spec.identity.session_id == "m2"
        assert ready(agent) == []


async def test_claim_repeated_during_the_final_save_returns(agent: Agent) -> None:
    standby = await a_standby(agent, claim_signal="SIGUSR1")
    saving = held_before(agent.records, "save", lambda session: session.claim.notified)
    await agent.warm_pools.claim(standby.internal_id, a_claim())
    await saving.reached.wait()
    again = claiming(agent, standby, a_claim(again=True))
    await until_idle()
    saving.set()
    assert (await again).spec.identity.session_id == "m1"
    assert signals(agent, standby) == 1


@pytest.mark.parametrize("stopped", [False, True])
async def test_repeated_claim_notifies_a_game_that_goes_on(agent: Agent, *, stopped: bool) -> None:
    standby = await a_standby(agent, claim_signal="SIGUSR1")
    with full_disk("publish"):
        await agent.warm_pools.claim(standby.internal_id, a_claim())
    again = claiming(agent, standby, a_claim(again=True))
    await asyncio.sleep(0)  # it has begun; the game is not notified yet
    if stopped:
        await agent.sessions.stop(standby.internal_id, EndReason.STOPPED)
    found = await again
    assert found.spec.identity.session_id == "m1"
    assert session_json(agent, found)["standby"] is stopped


@pytest.mark.parametrize("claimed", [True, False])
async def test_standby_without_its_directory_is_in_doubt(host: Host, *, claimed: bool) -> None:
    async with host() as agent:
        standby = await a_standby(agent)
        if claimed:
            await agent.warm_pools.claim(standby.internal_id, a_claim())
            await until_idle()
        await agent.records.delete(standby)
    for _ in range(2):  # also when it has a record again
        async with host() as agent, kept_full(agent):
            found = agent.now(standby.internal_id)
            assert found.is_standby is True
            assert found.state == State.RUNNING
            assert found.standby is not None
            assert found.standby.in_doubt
            assert len(ready(agent)) == 2  # it does not count: it may have been claimed
            with pytest.raises(errors.StandbyNotClaimableError, match="claimed already"):
                await agent.warm_pools.claim(standby.internal_id, a_claim("m2"))
            await ordered(agent, a_pool(0, revision=agent.warm_pools.pools[0].revision + 1))
            assert agent.now(standby.internal_id).state is State.RUNNING
            await ordered(agent, a_pool(1, revision=agent.warm_pools.pools[0].revision + 1))
    async with host() as agent:
        again = await agent.warm_pools.claim(standby.internal_id, a_claim(again=True))
        assert again.spec.identity.session_id == "m1"
        assert again.is_standby is False
        assert again.process == standby.process
    async with host() as agent:
        with pytest.raises(errors.StandbyNotClaimableError, match="another session"):
            await agent.warm_pools.claim(standby.internal_id, a_claim("m2"))


async def test_standby_in_doubt_can_be_removed_and_is_not_drained(host: Host) -> None:
    async with host() as agent:
        standby = await a_standby(agent)
        await agent.records.delete(standby)
    async with host() as agent, kept_full(agent, a_pool(0, revision=2)):
        assert await agent.sessions.drains.order(DrainOrder(1, draining=True)) == (None, 1)
        await until_idle()
        assert agent.now(standby.internal_id).state is State.RUNNING
        await agent.sessions.stop(standby.internal_id, EndReason.STOPPED, discard=True)
        assert agent.sessions.all() == []


async def test_recorded_standby_survives_a_restart(host: Host) -> None:
    async with host() as agent:
        standby = await a_standby(agent)
    async with host(reconcile=False) as agent:
        for internal_id in (standby.internal_id, an_id()):
            with pytest.raises(errors.NotReconciledError):
                await agent.warm_pools.claim(internal_id, a_claim())
        await agent.pass_over()
        assert (await agent.warm_pools.claim(standby.internal_id, a_claim())).claim is not None


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "nul",
        '{"a": 1} x',
        "[" * 200_000,
        r'"\ud800"',
    ],
)
def test_rejects_a_request_that_is_not_json(text: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="not JSON"):
        checked_request(text)


def test_claim_without_a_request_has_null() -> None:
    assert checked_request("") == "null"
