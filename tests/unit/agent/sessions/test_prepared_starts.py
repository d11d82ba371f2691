"""Starts that take a prepared container."""

import asyncio
import errno
import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from agent.domain.containers.engine import Start, container_name
from agent.domain.errors import (
    DiskFullError,
    EngineUnavailableError,
    ImageCannotRunError,
    NoCapacityError,
    SessionStoppedError,
)
from agent.domain.sessions.history import Usage
from agent.domain.sessions.session import Session
from agent.domain.steps import START_STEPS
from tests.support.agent.hosts import Agent, Host, assert_nothing_is_left, until
from tests.support.agent.keeping import PREPARED, kept_ids, prepared_for
from tests.support.agent.pools import a_pool, kept_full, standbys
from tests.support.agent.samples import IMAGE, a_spec, an_id
from tests.support.fake_clock import until_idle
from tests.support.tasks import running
from tiltyard.contract import EndReason, PortRequest, Protocol, State

UDP = PortRequest(7777, Protocol.UDP)
STEPS = [each for each in START_STEPS if each not in {"start.recorded", "start.created"}]
"""The steps of a start whose container has been created before."""


@pytest.fixture
async def agent(host: Host) -> AsyncIterator[Agent]:
    async with host(prepared=PREPARED) as agent:
        yield agent


def public(agent: Agent, session: Session) -> dict[str, Any]:
    """The session.json that the game of a session reads."""
    path = agent.records.public_dir(session) / "session.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


# -- the start -----------------------------------------------------------------------------------


async def test_its_usage_is_read_as_that_of_a_young_run(agent: Agent) -> None:
    await prepared_for(agent, a_spec())
    async with running(agent.usage.run()):
        await agent.clock.advance(7)
        session = await agent.sessions.start(an_id(), a_spec())
        agent.cgroups.use(session.process, cpu_seconds=1, memory_bytes=1)
        await agent.clock.advance(2)
        agent.cgroups.remove(session.process)
        assert await agent.usage.read(session.made_for) == Usage(1, 1)


async def test_start_takes_the_container_of_its_shape(agent: Agent) -> None:
    prepared = await prepared_for(agent, a_spec())
    session = await agent.sessions.start(an_id(), a_spec(args=("--map", "x"), ttl=60.0))
    assert session.container == prepared.container.container
    assert session.prepared == prepared.prepared_id
    assert session.ports == prepared.template.ports
    assert session.process == prepared.container.process
    assert agent.engine.executed == {session.container: 1}
    assert agent.recorded(session.internal_id) == session.with_changes(sequence=0)
    assert kept_ids(agent) == []


async def test_start_in_a_prepared_container_asks_the_engine_for_nothing_but_its_program(
    agent: Agent,
) -> None:
    await prepared_for(agent, a_spec())
    internal_id = an_id()
    agent.engine.calls.clear()
    starter = await agent.held_at("start.handed", agent.sessions.start(internal_id, a_spec()))
    assert [call for call, _ in agent.engine.calls] == ["program", "hand_over"]
    agent.steps.release("start.handed")
    await starter


async def test_all_is_true_before_a_prepared_container_executes_its_game(agent: Agent) -> None:
    await prepared_for(agent, a_spec())
    internal_id = an_id()
    start = agent.sessions.start(internal_id, a_spec(ttl=60.0))
    starting = await agent.engine.held_in("hand_over", start)
    record = agent.recorded(internal_id)
    assert record.state is State.RUNNING
    assert record.start_time == agent.clock.time()
    assert record.deadline is not None
    assert public(agent, record)["expire_time"] == record.deadline.expire_time * 1000
    assert public(agent, record)["id"] == record.spec.identity.session_id
    assert agent.runtime.deadlines.next_due() == record.deadline.boottime
    assert agent.flows_forgotten == [record.ports]
    assert agent.sessions.started() == []
    assert not agent.engine.executed
    agent.engine.release("hand_over")
    assert (await starting).with_changes(sequence=0) == record


async def test_prepared_container_gets_the_program_and_environment_of_its_session(
    agent: Agent,
) -> None:
    agent.engine.programs[IMAGE] = (("/bin/server",), ())
    spec = a_spec(args=("--map", "ü"), env={"AT": "$TILTYARD_HOST"})
    await prepared_for(agent, spec)
    session = await agent.sessions.start(an_id(), spec)
    [container] = agent.engine.all
    expected = {"AT": "192.0.2.1", **session.injected_env}
    assert container.starts == [Start(("/bin/server", "--map", "ü"), expected)]
    assert session.injected_env["TILTYARD_SESSION_ID"] == spec.identity.session_id


async def test_start_of_another_shape_takes_none(agent: Agent) -> None:
    prepared = await prepared_for(agent, a_spec(ports=(UDP,)))
    session = await agent.sessions.start(an_id(), a_spec(ports=()))
    assert session.prepared == ""
    assert kept_ids(agent) == [prepared.prepared_id]


async def test_start_in_a_prepared_container_needs_no_start_slot(host: Host) -> None:
    async with host(start_slots=1, prepared=PREPARED) as agent:
        await prepared_for(agent, a_spec())
        slow = await agent.held_at(
            "start.created", agent.sessions.start(an_id(), a_spec(ports=()))
        )
        session = await agent.sessions.start(an_id(), a_spec())
        assert session.prepared
        agent.steps.release("start.created")
        await slow


async def test_container_gets_the_name_of_its_session_after_the_answer(agent: Agent) -> None:
    await prepared_for(agent, a_spec())
    agent.engine.hold("rename")
    session = await agent.sessions.start(an_id(), a_spec())
    await agent.clock.advance(1)
    await agent.engine.held("rename")
    agent.engine.release("rename")
    await until_idle()
    assert agent.engine.all[0].name == container_name(session.internal_id)


async def test_container_that_cannot_be_renamed_keeps_its_session(agent: Agent) -> None:
    await prepared_for(agent, a_spec())
    agent.engine.fail_next("rename", EngineUnavailableError("gone"))
    session = await agent.sessions.start(an_id(), a_spec())
    await agent.ready(session.internal_id)
    await agent.clock.advance(1)
    await agent.pass_over()
    assert agent.now(session.internal_id).state is State.RUNNING
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED, discard=True)
    assert agent.engine.all == []
    assert agent.nothing_is_held()


async def test_start_that_is_refused_leaves_the_container_to_the_next(host: Host) -> None:
    async with host(max_sessions=1, prepared=PREPARED) as agent:
        prepared = await prepared_for(agent, a_spec())
        other = await agent.sessions.start(an_id(), a_spec(ports=()))
        with pytest.raises(NoCapacityError):
            await agent.sessions.start(an_id(), a_spec())
        assert kept_ids(agent) == [prepared.prepared_id]
        await agent.sessions.stop(other.internal_id, EndReason.STOPPED)
        session = await agent.sessions.start(an_id(), a_spec())
        assert session.ports == prepared.template.ports


@pytest.mark.parametrize("pinned", [0, 20000])
async def test_start_that_lacks_a_port_gets_that_of_a_prepared_container(
    host: Host, pinned: int
) -> None:
    async with host(ports=(20000, 20000), prepared=PREPARED) as agent:
        await prepared_for(agent, a_spec())
        session = await agent.sessions.start(an_id(), a_spec(ports=(replace(UDP, pinned=pinned),)))
        assert session.prepared == ""
        assert session.ports[0].host == 20000
        assert kept_ids(agent) == []
        assert agent.engine.executed == {session.container: 1}


async def test_standby_that_lacks_a_port_gets_that_of_a_prepared_container(host: Host) -> None:
    async with host(ports=(20000, 20000), prepared=PREPARED) as agent:
        await prepared_for(agent, a_spec(ports=(UDP,)))
        async with kept_full(agent, a_pool(1, ports=(UDP,))):
            await until(lambda: len(standbys(agent)) == 1)
        assert kept_ids(agent) == []


async def test_start_that_waits_for_ports_is_begun_once(host: Host) -> None:
    async with host(ports=(20000, 20000), prepared=PREPARED) as agent:
        await prepared_for(agent, a_spec())
        internal_id = an_id()
        spec = a_spec(ports=(UDP,))
        first = await agent.engine.held_in("remove", agent.sessions.start(internal_id, spec))
        again = asyncio.create_task(agent.sessions.start(internal_id, spec))
        await until_idle()
        agent.engine.release("remove")
        assert await again == await first
        assert sum(agent.engine.executed.values()) == 1


async def test_repeated_start_joins_the_first(agent: Agent) -> None:
    await prepared_for(agent, a_spec())
    internal_id = an_id()
    spec = a_spec(args=("x",))
    first = await agent.held_at("start.saved", agent.sessions.start(internal_id, spec))
    agent.steps.release("start.saved")
    assert await agent.sessions.start(internal_id, spec) == await first
    assert sum(agent.engine.executed.values()) == 1


# -- its life ------------------------------------------------------------------------------------


async def test_restart_uses_the_same_container_and_folder(agent: Agent) -> None:
    await prepared_for(agent, a_spec())
    session = await agent.sessions.start(an_id(), a_spec(restart=True, args=("x",)))
    agent.engine.end(session.container, 1)
    await agent.reached(session.internal_id, State.RESTARTING)
    await agent.clock.advance(1)
    await agent.reached(session.internal_id, State.RUNNING)
    [container] = agent.engine.all
    first, second = container.starts
    assert second == first
    assert public(agent, session)["id"] == session.spec.identity.session_id


async def test_discarded_session_leaves_nothing_of_its_prepared_container(agent: Agent) -> None:
    await prepared_for(agent, a_spec())
    session = await agent.sessions.start(an_id(), a_spec())
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED, discard=True)
    assert agent.engine.all == []
    assert await agent.records.prepared_ids() == []
    await assert_nothing_is_left(agent)


# -- starts that fail ----------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
async def test_no_step_comes_after_a_stop(agent: Agent, step: str) -> None:
    await prepared_for(agent, a_spec())
    internal_id = an_id()
    starter = await agent.held_at(step, agent.sessions.start(internal_id, a_spec()))
    agent.sessions.life(internal_id).ask_stop(EndReason.STOPPED)
    agent.steps.release(step)
    with pytest.raises(SessionStoppedError):
        await starter
    assert sum(agent.engine.executed.values()) == (step == "start.handed")
    assert agent.engine.living == set()
    assert await agent.records.prepared_ids() == []
    await assert_nothing_is_left(agent)


async def test_program_that_cannot_run_undoes_the_start(agent: Agent) -> None:
    prepared = await prepared_for(agent, a_spec())
    agent.cgroups.use(prepared.container.process, cpu_seconds=1, memory_bytes=1)
    agent.engine.fail_next("hand_over", ImageCannotRunError("/game is missing"))
    with pytest.raises(ImageCannotRunError):
        await agent.sessions.start(an_id(), a_spec(ttl=60.0))
    assert await agent.usage.read(prepared.prepared_id) == Usage()
    assert agent.engine.count("create") == 1
    assert agent.engine.all == []
    assert await agent.records.prepared_ids() == []
    await assert_nothing_is_left(agent)


async def test_full_disk_undoes_the_start(agent: Agent) -> None:
    await prepared_for(agent, a_spec())
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    flush = mock.patch.object(os, "fdatasync", side_effect=full)
    with flush, pytest.raises(DiskFullError):
        await agent.sessions.start(an_id(), a_spec())
    assert agent.engine.all == []
    assert not agent.engine.executed
    await assert_nothing_is_left(agent)
