"""The trace of a start reaches the game and the log."""

from dataclasses import replace

import pytest

from tests.support.agent.hosts import Agent
from tests.support.agent.pools import a_claim, a_pool, kept_full, ordered, ready, session_json
from tests.support.agent.samples import a_spec, an_id
from tiltyard.contract import SessionSpec

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def traced(**changes: object) -> SessionSpec:
    spec = a_spec(**changes)
    return replace(spec, identity=replace(spec.identity, traceparent=TRACEPARENT))


async def test_game_has_the_trace_in_its_environment(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), traced())
    [container] = agent.engine.all
    assert container.starts[0].env["TRACEPARENT"] == TRACEPARENT
    assert "TRACEPARENT" not in session.injected_env
    assert session_json(agent, session)["traceparent"] == TRACEPARENT
    assert agent.recorded(session.internal_id).spec.identity.traceparent == TRACEPARENT


async def test_variable_of_the_caller_wins(agent: Agent) -> None:
    await agent.sessions.start(an_id(), traced(env={"TRACEPARENT": "mine"}))
    [container] = agent.engine.all
    assert container.starts[0].env["TRACEPARENT"] == "mine"


async def test_game_without_a_trace_has_no_variable(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    [container] = agent.engine.all
    assert "TRACEPARENT" not in container.starts[0].env
    assert session_json(agent, session)["traceparent"] is None


async def test_game_that_is_started_again_has_the_trace(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), traced(restart=True))
    await agent.fail(session, then=60.0)
    [container] = agent.engine.all
    assert [start.env["TRACEPARENT"] for start in container.starts] == [TRACEPARENT] * 2


async def test_claimed_game_finds_the_trace_in_its_file(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with kept_full(agent):
        await ordered(agent, a_pool(1))
    [standby] = ready(agent)
    request = a_claim()
    request = replace(request, identity=replace(request.identity, traceparent=TRACEPARENT))
    session = await agent.warm_pools.claim(standby.internal_id, request)
    [container] = agent.engine.all
    assert "TRACEPARENT" not in container.starts[0].env
    assert session_json(agent, session)["traceparent"] == TRACEPARENT
    [line] = [line for line in caplog.messages if line.startswith("standby claimed")]
    assert f"trace_id={TRACE}" in line


async def test_lines_of_a_session_have_its_trace(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await agent.sessions.start(an_id(), traced())
    await agent.sessions.start(an_id(), a_spec())
    lines = [line for line in caplog.messages if line.startswith("session started")]
    assert [f"trace_id={TRACE}" in line for line in lines] == [True, False]
