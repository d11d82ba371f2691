"""Sessions that took a prepared container, after a kill of the agent or the loss of a record."""

import asyncio
from collections.abc import AsyncIterator
from unittest import mock

import pytest

from agent.domain.containers.engine import container_name, prepared_name
from agent.domain.errors import (
    EngineTimeoutError,
    NotReconciledError,
    SpecConflictError,
    StandbyNotClaimableError,
)
from agent.domain.kept.prepared import Prepared, template_for
from agent.domain.sessions.session import Session
from agent.sessions.life import ClaimRequest
from agent.state.record import Records
from tests.faults.memory_host import assert_survived
from tests.support.agent.demands import a_shape
from tests.support.agent.hosts import Agent, Host, assert_nothing_is_left, until, until_sealed
from tests.support.agent.keeping import PREPARED, kept_ids, prepared_for
from tests.support.agent.samples import a_spec, an_id
from tests.support.fake_clock import until_idle
from tests.support.tasks import let_go
from tiltyard.contract import EndReason, State

SPEC = a_spec(args=("--map", "x"), env={"KEY": "secret"}, ttl=600.0, restart=True)


@pytest.fixture
async def agent(host: Host) -> AsyncIterator[Agent]:
    async with host(prepared=PREPARED) as agent:
        yield agent


async def killed_at(host: Host, step: str) -> tuple[str, Prepared]:
    """The id of a session whose agent was killed at a step of its start, and its container."""
    internal_id = an_id()
    async with host(prepared=PREPARED) as agent:
        prepared = await prepared_for(agent, SPEC)
        starter = await agent.held_at(step, agent.sessions.start(internal_id, SPEC))
        await let_go(starter)
    return internal_id, prepared


async def lost(host: Host, *, renamed: bool = True) -> Session:
    """A session in a prepared container, whose record is lost while no agent runs."""
    async with host(prepared=PREPARED) as agent:
        await prepared_for(agent, SPEC)
        if not renamed:
            agent.engine.hold("rename")
        session = await agent.sessions.start(an_id(), SPEC)
        await agent.clock.advance(1)  # it is renamed
        await agent.lose_record(session.internal_id)
    if not renamed:
        host.engine.release("rename")
    return session


def names(host: Host) -> list[str]:
    return [container.name for container in host.engine.all]


# -- after a kill of the agent -------------------------------------------------------------------


@pytest.mark.parametrize("step", ["start.reserved", "start.waiting"])
async def test_container_that_no_record_names_is_prepared_for_the_next_start(
    host: Host, step: str
) -> None:
    _, prepared = await killed_at(host, step)
    async with host(prepared=PREPARED) as agent:
        await agent.pass_over()
        assert agent.sessions.all() == []
        assert kept_ids(agent) == [prepared.prepared_id]
        session = await agent.sessions.start(an_id(), SPEC)
        assert session.container == prepared.container.container
        assert host.engine.executed == {session.container: 1}
        assert agent.recorded(session.internal_id).ports == prepared.template.ports


async def test_container_that_a_record_names_is_handed_its_program_by_the_next_agent(
    host: Host,
) -> None:
    internal_id, prepared = await killed_at(host, "start.saved")
    async with host(prepared=PREPARED) as agent:
        await until(lambda: bool(host.engine.executed))
        await agent.ready(internal_id)
        await agent.clock.advance(1)
        assert host.engine.executed == {prepared.container.container: 1}
        assert agent.now(internal_id).state is State.RUNNING
        assert names(host) == [container_name(internal_id)]
        await assert_survived(agent)


async def test_game_that_was_executed_is_not_handed_its_program_again(host: Host) -> None:
    internal_id, prepared = await killed_at(host, "start.handed")
    async with host(prepared=PREPARED) as agent:
        await agent.ready(internal_id)
        assert host.engine.executed == {prepared.container.container: 1}
        assert host.engine.count("hand_over") == 1
        await assert_survived(agent)


async def test_prepared_containers_are_kept_before_starts_are_admitted(host: Host) -> None:
    async with host(prepared=PREPARED) as agent:
        prepared = await prepared_for(agent, SPEC)
    async with host(prepared=PREPARED, reconcile=False) as agent:
        host.engine.hold("inspect")
        first_pass = asyncio.create_task(agent.reconciler.pass_once())
        await host.engine.held("inspect")
        with pytest.raises(NotReconciledError):
            await agent.sessions.start(an_id(), SPEC)
        host.engine.release("inspect")
        await first_pass
        session = await agent.sessions.start(an_id(), SPEC)
        assert session.prepared == prepared.prepared_id


async def test_starts_are_admitted_without_a_container_that_the_engine_cannot_inspect(
    host: Host,
) -> None:
    async with host(prepared=PREPARED) as agent:
        prepared = await prepared_for(agent, SPEC)
    host.engine.fail_next("inspect", EngineTimeoutError("inspect"))
    async with host(prepared=PREPARED) as agent:
        host.engine.calls.clear()
        session = await agent.sessions.start(an_id(), SPEC)
        mine = {port.host for port in session.ports}
        assert mine.isdisjoint({port.host for port in prepared.template.ports})
        assert host.engine.count("create") == 1
        await agent.pass_over()
        assert prepared.prepared_id in kept_ids(agent)


async def test_container_that_another_user_renames_is_still_the_session(agent: Agent) -> None:
    await prepared_for(agent, SPEC)
    session = await agent.sessions.start(an_id(), SPEC)
    await until_idle()
    await agent.engine.rename(session.container, "mine")
    await agent.pass_over(after=100)
    await agent.pass_over(after=100)
    assert agent.now(session.internal_id).state is State.RUNNING
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED, discard=True)
    assert agent.engine.all == []


# -- lost records --------------------------------------------------------------------------------


async def test_f06_session_in_a_prepared_container_is_in_doubt_without_its_record(
    host: Host,
) -> None:
    before = await lost(host)
    async with host(prepared=PREPARED) as agent:
        await agent.ready(before.internal_id)
        session = agent.now(before.internal_id)
        assert session.state is State.RUNNING
        assert session.process == before.process
        assert session.ports == before.ports
        assert session.spec == SPEC.shape
        assert session.prepared == before.prepared
        assert session.standby is not None
        assert session.standby.pool == before.prepared
        assert session.standby.in_doubt
        assert host.engine.executed == {before.container: 1}
        await assert_survived(agent)


async def test_f06_start_that_is_repeated_joins_the_session_in_doubt(host: Host) -> None:
    before = await lost(host)
    async with host(prepared=PREPARED) as agent:
        found = await agent.sessions.start(before.internal_id, SPEC)
        assert found.internal_id == before.internal_id
        with pytest.raises(SpecConflictError):
            await agent.sessions.start(before.internal_id, a_spec(ports=()))
        assert sum(host.engine.executed.values()) == 1


@pytest.mark.parametrize("is_ready", [False, True])
async def test_f06_repeated_claim_gives_the_session_its_identity_and_lifetime(
    host: Host, *, is_ready: bool
) -> None:
    before = await lost(host)
    host.engine.find(before.container).bound = is_ready
    async with host(prepared=PREPARED) as agent:
        claim = ClaimRequest(SPEC.identity, 300.0, "null")
        with pytest.raises(StandbyNotClaimableError):
            await agent.warm_pools.claim(before.internal_id, claim)
        again = ClaimRequest(SPEC.identity, 300.0, "null", again=True)
        session = await agent.warm_pools.claim(before.internal_id, again)
        assert session.spec.identity == SPEC.identity
        assert session.deadline is not None
        assert session.deadline.expire_time == host.clock.time() + 300
        assert await agent.sessions.start(before.internal_id, SPEC) == agent.now(
            before.internal_id
        )
        await assert_survived(agent)


async def test_f06_session_in_doubt_does_not_restart(host: Host) -> None:
    """Its arguments and environment were in the record alone."""
    before = await lost(host)
    async with host(prepared=PREPARED) as agent:
        await agent.reached(before.internal_id, State.RUNNING)
        host.engine.end(before.container, 1)
        ended = (await until_sealed(agent, before.internal_id)).session
        assert ended.state is State.EXITED
        assert ended.exit_code == 1


async def test_f06_log_of_a_session_that_ended_without_its_record_is_sealed(host: Host) -> None:
    before = await lost(host)
    host.engine.write_log(before.container, b"over\n")
    host.engine.end(before.container, 3)
    async with host(prepared=PREPARED) as agent:
        ended = (await until_sealed(agent, before.internal_id)).session
        assert ended.state is State.EXITED
        assert ended.exit_code == 3
        assert agent.records.log_path(before.internal_id).exists()


async def test_f06_game_in_a_container_without_record_and_name_is_removed(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    before = await lost(host, renamed=False)
    assert names(host) == [prepared_name(before.prepared)]
    async with host(prepared=PREPARED) as agent:
        await until(lambda: host.engine.all == [])
        await until_idle()
        assert agent.sessions.all() == []
        await assert_nothing_is_left(agent)
    assert before.prepared in caplog.text


async def test_session_that_cannot_be_restored_yet_keeps_the_folder_that_it_sees(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await lost(host)
    with monkeypatch.context() as patched:
        patched.setattr(Records, "create", mock.Mock(side_effect=RuntimeError("as scripted")))
        async with host(prepared=PREPARED) as agent:
            await agent.records.prepare(template_for(before.prepared, a_shape(), 0.0))
            for _ in range(3):
                await agent.pass_over()
            assert agent.sessions.all() == []
            assert await agent.records.prepared_ids() == [before.prepared]
            patched.undo()
            await agent.pass_over()
            assert agent.now(before.internal_id).state is State.RUNNING


async def test_waiting_container_with_the_name_of_a_session_is_an_orphan(host: Host) -> None:
    async with host(prepared=PREPARED) as agent:
        prepared = await prepared_for(agent, SPEC)
        await host.engine.rename(prepared.container.container, container_name(an_id()))
    async with host(prepared=PREPARED) as agent:
        assert agent.sessions.all() == []
        await agent.pass_over()
        await agent.pass_over(after=61)
        assert host.engine.all == []
