import asyncio
import dataclasses
import logging
from collections import Counter
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from agent.domain import errors
from agent.domain.containers.engine import container_name
from agent.domain.sessions.session import Port
from agent.domain.steps import START_STEPS
from agent.sessions import life
from tests.support.agent.hosts import Agent, Host, assert_nothing_is_left
from tests.support.agent.pools import session_json
from tests.support.agent.samples import a_spec, an_id
from tests.support.fake_clock import until_idle
from tests.support.hold import held_before
from tests.support.tasks import let_go, running
from tiltyard.contract import EndReason, PortRequest, Protocol, Resources, SessionSpec, State
from tiltyard.runtime.logging.events import bind
from tiltyard.runtime.logging.output import Limit

ID = "01234567-89ab-4def-8123-456789abcdef"


async def test_started_session_runs_and_is_recorded(agent: Agent) -> None:
    internal_id = an_id()
    session = await agent.sessions.start(internal_id, a_spec())
    assert session.state is State.RUNNING
    udp, tcp = session.ports
    assert udp == Port(7777, Protocol.UDP, 20000)
    assert tcp == Port(7778, Protocol.TCP, 20000)
    assert session.injected_env["TILTYARD_PORT_UDP_7777"] == "20000"
    record = agent.recorded(internal_id)
    assert record.state == State.RUNNING
    assert record.spec.identity == a_spec().identity
    public = session_json(agent, session)
    assert public["ports"][0] == {"type": "udp", "container": 7777, "host": 20000}
    assert agent.reservations.capacity.reserved == a_spec().reservation


@mock.patch("agent.changes.feed.GATHER_SECONDS", 3600.0)
async def test_start_and_stop_are_reported_once_each(agent: Agent) -> None:
    with agent.runtime.feed.subscribe() as subscription:
        taking = asyncio.create_task(subscription.take(3600.0), name="taking")
        internal_id = (await agent.sessions.start(an_id(), a_spec())).internal_id
        started = await taking
        assert started.host
        [session] = started.sessions
        assert session.ready_time is not None
        taking = asyncio.create_task(subscription.take(3600.0), name="taking")
        await agent.sessions.stop(internal_id, EndReason.STOPPED)
        ended = await taking
        assert ended.host
        [session] = ended.sessions
        assert session.state is State.EXITED


async def test_container_starts_once_its_record_is_durable(agent: Agent) -> None:
    gate = held_before(agent.records, "flush")
    starting = asyncio.create_task(agent.sessions.start(an_id(), a_spec()), name="starting")
    await gate.reached.wait()
    await until_idle()
    assert agent.engine.count("create") == 1
    assert agent.engine.count("start") == 0
    gate.set()
    assert (await starting).state is State.RUNNING


async def test_start_is_undone_if_its_record_cannot_be_made_durable(agent: Agent) -> None:
    full = errors.DiskFullError("record.json", "no space left")
    failing = mock.patch.object(agent.records, "flush", side_effect=full)
    with failing, pytest.raises(errors.DiskFullError):
        await agent.sessions.start(an_id(), a_spec())
    assert agent.engine.count("start") == 0
    await assert_nothing_is_left(agent)


async def test_repeated_start_joins_and_another_spec_is_refused(agent: Agent) -> None:
    internal_id = an_id()
    first = await agent.held_at("start.created", agent.sessions.start(internal_id, a_spec()))
    again = asyncio.create_task(agent.sessions.start(internal_id, a_spec()))
    with pytest.raises(errors.SpecConflictError):
        await agent.sessions.start(internal_id, a_spec(args=("other",)))
    agent.steps.release("start.created")
    assert await first == await again
    assert len(await agent.engine.list(agent.runtime.agent_id)) == 1
    assert (await agent.sessions.start(internal_id, a_spec())).state is State.RUNNING


async def test_game_that_the_engine_has_forgotten_ends_with_its_start(agent: Agent) -> None:
    internal_id = an_id()
    agent.steps.hold("start.waiting")
    starting = asyncio.create_task(agent.sessions.start(internal_id, a_spec()))
    await agent.steps.reached("start.waiting")
    agent.engine.forget_start(container_name(internal_id))
    stopping = asyncio.create_task(agent.sessions.stop(internal_id, EndReason.STOPPED))
    await until_idle()
    agent.steps.release("start.waiting")
    with pytest.raises(errors.SessionStoppedError):
        await starting
    with pytest.raises(errors.SessionNotFoundError):
        await stopping
    assert agent.engine.living == set()
    await assert_nothing_is_left(agent)


@pytest.mark.parametrize("step", START_STEPS)
async def test_start_cancelled_at_any_step_leaves_no_orphan(agent: Agent, step: str) -> None:
    internal_id = an_id()
    await let_go(await agent.held_at(step, agent.sessions.start(internal_id, a_spec())))
    agent.steps.release(step)
    assert (await agent.sessions.start(internal_id, a_spec())).state is State.RUNNING
    assert [s.internal_id for s in agent.sessions.all()] == [internal_id]
    await agent.sessions.stop(internal_id, EndReason.STOPPED)
    assert agent.nothing_is_held()


@pytest.mark.parametrize("step", START_STEPS)
async def test_stop_at_any_step_of_a_start_undoes_it(agent: Agent, step: str) -> None:
    internal_id = an_id()
    starter = await agent.held_at(step, agent.sessions.start(internal_id, a_spec()))
    stopper = asyncio.create_task(agent.sessions.stop(internal_id, EndReason.STOPPED))
    await asyncio.sleep(0)
    agent.steps.release(step)
    with pytest.raises(errors.SessionStoppedError):
        await starter
    with pytest.raises(errors.SessionNotFoundError):
        await stopper
    await assert_nothing_is_left(agent)
    with pytest.raises(errors.SessionStoppedError):
        await agent.sessions.start(internal_id, a_spec())


@pytest.mark.parametrize("call", ["create", "start", "inspect"])
@pytest.mark.parametrize(
    "error",
    [
        errors.ImageMissingError("game"),
        errors.ImageCannotRunError("no such entrypoint"),
        errors.EngineError("start", "no space"),
        errors.EngineTimeoutError("start"),
        errors.EngineUnavailableError("gone"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_refusal_leaves_nothing(agent: Agent, call: str, error: errors.AgentError) -> None:
    if call == "inspect":  # called when the outcome of the start is unknown
        agent.engine.answer_lost_next("start")
    agent.engine.fail_next(call, error)
    with pytest.raises(type(error)):
        await agent.sessions.start(an_id(), a_spec())
    if isinstance(error, errors.EngineUnavailableError) and call != "create":
        # A created container may remain: a later pass removes it.
        await agent.pass_over()
        await agent.pass_over(after=61)
    await assert_nothing_is_left(agent)


@pytest.mark.parametrize("pinned", [0, 20001])
async def test_ports_in_use_are_refused_with_nothing_left(host: Host, pinned: int) -> None:
    for port in range(20000, 20003):
        host.engine.ports.occupy("udp", port)
    request = PortRequest(7777, Protocol.UDP, pinned=pinned)
    async with host(ports=(20000, 20002)) as agent:
        with pytest.raises(errors.PortTakenError):
            await agent.sessions.start(an_id(), a_spec(ports=(request,)))
        await assert_nothing_is_left(agent)


@mock.patch("agent.sessions.starting.START_WAIT_SECONDS", None)
async def test_admission_is_atomic_under_fifty_callers(host: Host) -> None:
    async with host(cores=1, start_slots=50) as agent:
        starts = [agent.sessions.start(an_id(), a_spec()) for _ in range(50)]
        answers = await asyncio.gather(*starts, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, BaseException)]
        assert len(refused) == 40
        assert all(isinstance(answer, errors.NoCapacityError) for answer in refused)
        assert agent.reservations.capacity.reserved.nano_cpus == 10**9


def expanding(variables: int, references: int) -> SessionSpec:
    """A spec whose variables each refer to the session's id, which has 1024 bytes."""
    identity = dataclasses.replace(a_spec().identity, session_id="\U0001f3ae" * 256)
    env = {f"V{number}": "$TILTYARD_SESSION_ID" * references for number in range(variables)}
    return a_spec(identity=identity, env=env)


@pytest.mark.parametrize(
    ("variables", "references"),
    [
        (1, 128),
        (9, 120),
    ],
)
async def test_rejects_too_large_expansion(agent: Agent, variables: int, references: int) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"^cannot accept env: "):
        await agent.sessions.start(an_id(), expanding(variables, references))
    await assert_nothing_is_left(agent)


@pytest.mark.parametrize(
    ("variables", "references"),
    [
        (1, 127),
        (8, 120),
    ],
)
async def test_accepts_largest_expansion(agent: Agent, variables: int, references: int) -> None:
    session = await agent.sessions.start(an_id(), expanding(variables, references))
    assert session.state is State.RUNNING
    [container] = agent.engine.all
    [start] = container.starts
    assert len(start.env["V0"]) == references * 256


async def test_rejects_a_variable_that_the_host_sets(agent: Agent) -> None:
    for name in ("TILTYARD_HOST", "TILTYARD_PORT_UDP_7777"):
        with pytest.raises(errors.InvalidArgumentError, match=f"{name} is set by the host"):
            await agent.sessions.start(an_id(), a_spec(env={name: "mine"}))
    await assert_nothing_is_left(agent)


async def test_rejects_start_before_reconciliation(host: Host) -> None:
    async with host(reconcile=False) as agent:
        with pytest.raises(errors.NotReconciledError):
            await agent.sessions.start(an_id(), a_spec())
        assert agent.directories() == []


@pytest.mark.parametrize(
    "internal_id",
    [
        "",
        "x",
        "../../etc",
        ID.upper(),
        ID + "\n",
        ID + "/..",
    ],
)
async def test_internal_id_must_be_a_lower_case_uuid(agent: Agent, internal_id: str) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        await agent.sessions.start(internal_id, a_spec())
    with pytest.raises(errors.InvalidArgumentError):
        await agent.sessions.stop(internal_id, EndReason.STOPPED)


GPUS = ("GPU-1", "GPU-2")
ONE = a_spec(reservation=Resources(10**8, 2**25, 1), limits=Resources(10**9, 2**26, 1))


async def test_sessions_share_no_gpu_also_after_a_restart(host: Host) -> None:
    async with host(gpus=GPUS) as agent:
        sessions = [await agent.sessions.start(an_id(), ONE) for _ in GPUS]
        assert [session.gpu_ids for session in sessions] == [("GPU-1",), ("GPU-2",)]
        with pytest.raises(errors.NoCapacityError):
            await agent.sessions.start(an_id(), ONE)
        assert (await agent.sessions.start(an_id(), a_spec())).gpu_ids == ()
    async with host(gpus=GPUS) as agent:
        with pytest.raises(errors.NoCapacityError):
            await agent.sessions.start(an_id(), ONE)
        await agent.sessions.stop(sessions[0].internal_id, EndReason.STOPPED)
        assert (await agent.sessions.start(an_id(), ONE)).gpu_ids == ("GPU-1",)


async def test_container_is_created_with_the_devices_of_its_session(host: Host) -> None:
    async with host(gpus=GPUS) as agent:
        await agent.sessions.start(an_id(), ONE)
        [container] = host.engine.all
        assert container.spec.gpu_ids == ("GPU-1",)


async def test_host_without_gpus_refuses_a_session_that_needs_one(agent: Agent) -> None:
    with pytest.raises(errors.NoCapacityError):
        await agent.sessions.start(an_id(), ONE)
    await assert_nothing_is_left(agent)


async def test_missing_engine_floods_no_log(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    """Also while sessions end."""
    limit = Limit(monotonic=host.clock.monotonic)
    passed: list[str] = []
    keep = logging.Handler()
    keep.addFilter(limit)
    keep.emit = lambda record: passed.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(keep)
    try:
        async with host() as agent, running(agent.reconciler.run()):
            sessions = [await agent.sessions.start(an_id(), a_spec()) for _ in range(3)]
            host.engine.unavailable = True
            for session in sessions:
                agent.sessions.life(session.internal_id).ask_stop(EndReason.STOPPED)
            await host.clock.advance(300)
    finally:
        logging.getLogger().removeHandler(keep)
    assert len(caplog.records) > 45, "there is nothing to keep quiet"
    assert len(passed) < 35, Counter(line.split(" session=")[0] for line in passed)


async def test_only_a_start_has_its_request(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    hostile = a_spec(identity=replace(a_spec().identity, session_id="a\nb"))

    async def call() -> str:
        bind(request="r", agent="other")
        return (await agent.sessions.start(an_id(), hostile)).internal_id

    async with host() as agent:
        internal_id = await asyncio.create_task(call(), name="call")
        await agent.sessions.stop(internal_id, EndReason.STOPPED)
    lines = [record for record in caplog.records if record.name == life.__name__]
    events: list[Any] = [record.msg for record in lines]
    started, ended = events
    assert started["event"] == "session started"
    assert started["session"] == internal_id
    assert started["request"] == "r"
    assert started["id"] == "a\nb"
    assert "agent" not in started
    assert ended["event"] == "session ended"
    assert ended["session"] == internal_id
    assert ended["reason"] == "stopped"
    assert ended.get("request") is None
