"""The hand-over of a program to a container that waits: last, and once for each run."""

import pytest

from agent.domain.containers.engine import Start
from agent.domain.errors import (
    HandOverFailedError,
    ImageCannotRunError,
    ImageMissingError,
    InvalidArgumentError,
    SessionStoppedError,
)
from agent.domain.steps import START_STEPS
from tests.support.agent.hosts import Agent, assert_nothing_is_left
from tests.support.agent.pools import a_claim, a_pool, kept_full, session_json, standbys
from tests.support.agent.samples import IMAGE, a_spec, an_id
from tiltyard.contract import EndReason, State

# -- what a start makes true first ---------------------------------------------------------------


async def test_all_is_true_before_the_game_is_executed(agent: Agent) -> None:
    internal_id = an_id()
    start = agent.sessions.start(internal_id, a_spec(ttl=60.0))
    starting = await agent.engine.held_in("hand_over", start)
    record = agent.recorded(internal_id)
    [container] = await agent.engine.list(agent.runtime.agent_id)
    assert record.state is State.RUNNING
    assert record.process == container.process
    assert record.address == container.address
    assert record.start_time == agent.clock.time()
    assert record.deadline is not None
    assert session_json(agent, record)["expire_time"] == record.deadline.expire_time * 1000
    assert agent.runtime.deadlines.next_due() == record.deadline.boottime
    assert set(agent.engine.ports.published) == {(p.protocol.value, p.host) for p in record.ports}
    assert agent.flows_forgotten == [record.ports]
    assert agent.sessions.started() == []
    assert not agent.engine.executed
    agent.engine.release("hand_over")
    session = await starting
    assert session.with_changes(sequence=0) == record
    assert agent.engine.executed == {session.container: 1}


async def test_program_is_resolved_recorded_and_handed_over_with_its_environment(
    agent: Agent,
) -> None:
    agent.engine.programs[IMAGE] = (("/bin/server", "-x"), ("--of", "the image"))
    spec = a_spec(args=("--map", "ü"), env={"AT": "$TILTYARD_HOST"}, ports=())
    session = await agent.sessions.start(an_id(), spec)
    program = ("/bin/server", "-x", "--map", "ü")
    assert session.program == program
    assert agent.recorded(session.internal_id).program == program
    [container] = agent.engine.all
    injected = {
        "TILTYARD_SESSION_ID": spec.identity.session_id,
        "TILTYARD_CONTAINER": spec.identity.session_id,
        "TILTYARD_HOST": "192.0.2.1",
        "TILTYARD_IP": "192.0.2.1",
    }
    assert container.starts == [Start(program, {"AT": "192.0.2.1", **injected})]


async def test_arguments_of_each_run_are_expanded(agent: Agent) -> None:
    agent.engine.programs[IMAGE] = (("/game",), ())
    spec = a_spec(args=("--public", "${TILTYARD_HOST}:$TILTYARD_PORT_UDP_7777"), restart=True)
    session = await agent.sessions.start(an_id(), spec)
    await agent.fail(session, then=1)
    await agent.reached(session.internal_id, State.RUNNING)
    [container] = agent.engine.all
    [port] = [port for port in session.ports if port.container == 7777]
    expanded = ("/game", "--public", f"192.0.2.1:{port.host}")
    assert [start.program for start in container.starts] == [expanded, expanded]


async def test_restart_hands_over_the_same(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec(args=("--map", "x"), restart=True))
    agent.engine.programs[IMAGE] = (("/another",), ())
    await agent.fail(session, then=1)
    await agent.reached(session.internal_id, State.RUNNING)
    [container] = agent.engine.all
    first, second = container.starts
    assert second == first


async def test_restarted_standby_keeps_its_environment_after_a_claim(agent: Agent) -> None:
    async with kept_full(agent, a_pool(1, restart=True)):
        [standby] = standbys(agent)
    await agent.ready(standby.internal_id)
    claimed = await agent.warm_pools.claim(standby.internal_id, a_claim())
    assert claimed.injected_env["TILTYARD_SESSION_ID"] != standby.internal_id
    await agent.fail(claimed, then=1)
    await agent.reached(standby.internal_id, State.RUNNING)
    [container] = agent.engine.all
    first, second = container.starts
    assert first.env["TILTYARD_SESSION_ID"] == standby.internal_id
    assert second == first


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (ImageMissingError(IMAGE), "program"),
        (ImageCannotRunError("it names no command and none is given"), "program"),
        (ImageCannotRunError("/game is missing"), "hand_over"),
        (HandOverFailedError("hand over", "its init has ended"), "hand_over"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
async def test_start_that_is_refused_is_undone_with_the_cause(
    agent: Agent, error: Exception, call: str
) -> None:
    agent.engine.fail_next(call, error)  # type: ignore[arg-type]  # all are errors of the agent
    with pytest.raises(type(error)) as raised:
        await agent.sessions.start(an_id(), a_spec(ttl=60.0))
    assert str(raised.value) == str(error)
    assert agent.engine.count("create") == (call == "hand_over")
    assert agent.engine.living == set()
    await assert_nothing_is_left(agent)


async def test_too_long_arguments_are_refused_before_anything_is_reserved(agent: Agent) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^cannot accept args: "):
        await agent.sessions.start(an_id(), a_spec(args=("$TILTYARD_HOST" + "x" * 131_063,)))
    assert agent.engine.count("program") == 0
    await assert_nothing_is_left(agent)


@pytest.mark.parametrize("step", START_STEPS)
async def test_no_step_of_a_start_comes_after_a_stop(agent: Agent, step: str) -> None:
    internal_id = an_id()
    starter = await agent.held_at(step, agent.sessions.start(internal_id, a_spec()))
    agent.sessions.life(internal_id).ask_stop(EndReason.STOPPED)
    agent.steps.release(step)
    with pytest.raises(SessionStoppedError):
        await starter
    assert sum(agent.engine.executed.values()) == (step == "start.handed")
    assert agent.engine.living == set()
