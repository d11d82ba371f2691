"""Samples of logs that say little: of a wrong clock, a late look, or a session that is gone."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent.domain.containers.engine import name_of
from agent.domain.sessions.log_rate import TOLERATED_SECONDS
from agent.domain.sessions.session import Session
from agent.limits.log_limits import SAMPLED
from tests.support.agent.hosts import Agent
from tests.support.fake_clock import until_idle
from tests.unit.agent.limits.printing import (
    LINES,
    STEP,
    limits_of,
    live,
    printed,
    relay,
    samples,
    started,
)
from tiltyard.contract import EndReason, State

pytestmark = pytest.mark.usefixtures("small_samples")


@pytest.mark.parametrize(
    ("before", "lines"),
    [
        (50 * LINES, 1),
        (4, 4),
    ],
)
async def test_clock_that_is_set_back_makes_no_flood_of_what_is_none(
    agent: Agent, before: int, lines: int
) -> None:
    """The newest lines are then later than now, until as many have been printed again."""
    limits = limits_of(agent, host_lines=13 * LINES)
    games = [await started(agent) for _ in range(3)]
    await printed(limits, agent, *games, lines=before, seconds=3)
    await printed(limits, agent, *games, lines=lines, seconds=TOLERATED_SECONDS)
    agent.clock.jump(-3600)
    await printed(limits, agent, *games, lines=lines, seconds=2 * TOLERATED_SECONDS)
    assert samples(agent)
    assert not limits.warnings
    assert live(agent, games) == 3


async def test_sessions_whose_rate_is_unknown_add_nothing_to_that_of_their_account(
    agent: Agent,
) -> None:
    limits = limits_of(agent, host_lines=4 * LINES)
    games = [await started(agent) for _ in range(SAMPLED)]
    await printed(limits, agent, *games, lines=50 * LINES, seconds=3)
    await printed(limits, agent, *games, lines=1, seconds=TOLERATED_SECONDS)
    agent.clock.jump(-3600)
    await printed(limits, agent, games[0], lines=18, seconds=3 * TOLERATED_SECONDS)
    assert samples(agent)
    assert not limits.warnings
    assert live(agent, games) == SAMPLED


async def test_flood_is_found_again_after_the_clock_was_set_back(agent: Agent) -> None:
    limits = limits_of(agent)
    loud = await started(agent)
    await printed(limits, agent, loud, seconds=9)
    agent.clock.jump(-3600)
    await printed(limits, agent, loud, seconds=TOLERATED_SECONDS + 12)
    assert agent.now(loud.internal_id).end_reason is EndReason.LOG


async def test_lines_that_are_printed_during_a_sample_count(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest lines of a flood are later than the begin of a sample that takes long."""
    limits = limits_of(agent)
    loud = await started(agent)
    logs = agent.engine.logs

    def slow(container: str, **options: Any) -> object:
        agent.clock.stall(STEP)
        agent.engine.write_log(loud.container, b"\n" * LINES)
        agent.clock.stall(STEP)
        return logs(container, **options)

    monkeypatch.setattr(agent.engine, "logs", slow)
    await printed(limits, agent, loud, seconds=9)
    assert [loud.internal_id in each for each in limits.warnings] == [True]


async def test_burst_after_a_late_look_has_no_consequence(agent: Agent) -> None:
    """A sample says nothing of the seconds before it in which nobody looked."""
    limits = limits_of(agent)
    game = await started(agent)
    await printed(limits, agent, game, lines=1, seconds=6)
    agent.clock.stall(2 * TOLERATED_SECONDS)
    agent.engine.write_log(game.container, b"\n" * 50 * LINES)
    agent.clock.stall(STEP)
    relay(agent, game, seconds=2 * TOLERATED_SECONDS)
    await limits.look()
    await until_idle()
    assert limits.warnings
    assert agent.now(game.internal_id).state is State.RUNNING


async def test_session_that_is_removed_during_a_look_hides_no_warning_of_others(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = limits_of(agent)
    games = [await started(agent) for _ in range(2)]
    sampled: list[Session] = []
    logs = agent.engine.logs

    @contextlib.asynccontextmanager
    async def removing(container: str, **options: Any) -> AsyncIterator[Any]:
        async with logs(container, **options) as pieces:
            yield pieces
        [session] = [each for each in games if container in {each.container, name_of(each)}]
        sampled.append(session)
        if len(sampled) == 1:
            await agent.sessions.stop(sampled[0].internal_id, EndReason.STOPPED, discard=True)

    await printed(limits, agent, *games, seconds=6)
    monkeypatch.setattr(agent.engine, "logs", removing)
    await printed(limits, agent, *games, seconds=3)
    assert agent.sessions.find(sampled[0].internal_id) is None
    assert any(sampled[-1].internal_id in each for each in limits.warnings)
