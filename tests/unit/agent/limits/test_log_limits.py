"""Limits of the rate at which sessions print, on a fake engine that relays their output."""

from typing import Any

import pytest

from agent.domain.containers.engine import name_of
from agent.domain.errors import EngineTimeoutError
from agent.domain.sessions.log_rate import TOLERATED_SECONDS
from agent.limits.log_limits import LOOK_SECONDS, SAMPLED
from tests.support.agent.hosts import Agent, Host
from tests.support.tasks import running
from tests.unit.agent.limits.printing import (
    LINES,
    LOOKS,
    STEP,
    limits_of,
    live,
    printed,
    relay,
    samples,
    started,
    written,
)
from tiltyard.contract import EndReason, State

pytestmark = pytest.mark.usefixtures("small_samples")


async def test_flood_ends_with_a_reason_of_its_own(agent: Agent) -> None:
    limits = limits_of(agent)
    loud = await started(agent)
    quiet = await started(agent)
    await printed(limits, agent, loud, seconds=12)
    assert agent.now(loud.internal_id).state is State.RUNNING
    [warning] = limits.warnings
    assert f"session {loud.internal_id} prints more than session_log_lines" in warning
    await printed(limits, agent, loud, seconds=TOLERATED_SECONDS)
    ended = (await agent.reached(loud.internal_id)).session
    assert ended.end_reason is EndReason.LOG
    assert "session_log_lines" in ended.detail
    assert ended.restart_count == 0
    assert agent.now(quiet.internal_id).state is State.RUNNING
    await printed(limits, agent, quiet, lines=LINES // 5, seconds=5 * TOLERATED_SECONDS)
    assert not limits.warnings
    assert agent.now(quiet.internal_id).state is State.RUNNING


async def test_long_lines_count_by_their_bytes(agent: Agent) -> None:
    limits = limits_of(agent)
    loud = await started(agent)
    line = b"x" * 1000 + b"\n"
    for _ in range(LOOKS + 4):
        await written(limits, agent, loud, data=line * round(LINES * STEP / 2))
    assert agent.now(loud.internal_id).end_reason is EndReason.LOG


async def test_burst_has_no_consequence(agent: Agent) -> None:
    """A map is loaded: 50 times the lines that are allowed for ten seconds, then few."""
    limits = limits_of(agent)
    game = await started(agent)
    await printed(limits, agent, game, lines=50 * LINES, seconds=10)
    assert limits.warnings
    await printed(limits, agent, game, lines=LINES // 10, seconds=5 * TOLERATED_SECONDS)
    assert not limits.warnings
    assert agent.now(game.internal_id).state is State.RUNNING


async def test_game_below_the_limits_is_left_alone(agent: Agent) -> None:
    limits = limits_of(agent)
    game = await started(agent)
    await printed(limits, agent, game, lines=LINES // 2, seconds=2 * TOLERATED_SECONDS)
    assert not limits.warnings
    assert agent.now(game.internal_id).state is State.RUNNING
    assert samples(agent)


async def test_no_log_is_read_while_the_engine_is_idle(agent: Agent) -> None:
    game = await started(agent)
    async with running(limits_of(agent).run()):
        for _ in range(5):
            agent.engine.write_log(game.container, b"\n" * 10 * LINES)
            relay(agent, game, seconds=0.01)
            await agent.clock.advance(LOOK_SECONDS)
    assert samples(agent) == []


async def test_logs_are_looked_at_while_the_agent_runs(agent: Agent) -> None:
    loud = await started(agent)
    async with running(limits_of(agent).run()):
        while not samples(agent):
            relay(agent, loud, seconds=LOOK_SECONDS)
            await agent.clock.advance(LOOK_SECONDS)


async def test_floods_are_found_among_many_sessions(agent: Agent) -> None:
    limits = limits_of(agent)
    others = [await started(agent) for _ in range(8)]
    loud = [await started(agent) for _ in range(SAMPLED)]
    await printed(limits, agent, *loud, seconds=TOLERATED_SECONDS + 12)
    assert {agent.now(each.internal_id).end_reason for each in loud} == {EndReason.LOG}
    assert {agent.now(each.internal_id).state for each in others} == {State.RUNNING}


async def test_account_with_many_sessions_within_the_limits_is_held_to_its_share(
    agent: Agent,
) -> None:
    each = LINES // 2
    limits = limits_of(agent, host_lines=13 * each)
    many = [await started(agent) for _ in range(10)]
    await printed(limits, agent, *many, lines=each, seconds=12)
    assert live(agent, many) == 10
    [warning] = limits.warnings
    assert "account acme print more than its share of host_log_lines" in warning
    await printed(limits, agent, *many, lines=each, seconds=TOLERATED_SECONDS + 12)
    assert live(agent, many) == 6  # Half of what the host allows
    ended = [each for each in many if agent.now(each.internal_id).state.ended]
    assert {agent.now(each.internal_id).end_reason for each in ended} == {EndReason.LOG}
    await printed(limits, agent, *many, lines=each, seconds=6 * TOLERATED_SECONDS)
    assert live(agent, many) == 6
    assert not limits.warnings


async def test_account_beyond_its_share_costs_no_other_account_a_session(agent: Agent) -> None:
    each = LINES // 2
    limits = limits_of(agent, host_lines=13 * each)
    others = [await started(agent, "other") for _ in range(2)]
    many = [await started(agent) for _ in range(10)]
    await printed(limits, agent, *many, *others, lines=each, seconds=TOLERATED_SECONDS + 30)
    assert live(agent, others) == 2
    assert live(agent, many) < 10


async def test_failed_samples_end_nothing(agent: Agent) -> None:
    limits = limits_of(agent)
    loud = await started(agent)
    agent.engine.fail_next("logs", EngineTimeoutError("logs"), times=100)
    await printed(limits, agent, loud, seconds=TOLERATED_SECONDS + 12)
    assert not limits.warnings
    assert agent.now(loud.internal_id).state is State.RUNNING


async def test_error_about_the_log_of_one_session_leaves_the_others(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limits = limits_of(agent)
    odd = await started(agent)
    loud = await started(agent)
    logs = agent.engine.logs

    def failing(container: str, **options: Any) -> object:
        if container in {odd.container, name_of(odd)}:
            raise RuntimeError("as scripted")
        return logs(container, **options)

    monkeypatch.setattr(agent.engine, "logs", failing)
    await printed(limits, agent, odd, loud, seconds=9)
    assert [loud.internal_id in each for each in limits.warnings] == [True]
    assert "RuntimeError: as scripted" in caplog.text


async def test_agent_restarted_during_a_flood_ends_it(host: Host) -> None:
    async with host() as agent:
        loud = await started(agent)
        await agent.ready(loud.internal_id)
        await printed(limits_of(agent), agent, loud, seconds=20)
    async with host() as agent:
        await printed(limits_of(agent), agent, loud, seconds=TOLERATED_SECONDS + 12)
        assert agent.now(loud.internal_id).end_reason is EndReason.LOG


async def test_limits_of_zero_are_none(agent: Agent) -> None:
    await limits_of(agent, lines=0, size=0).run()  # returns
