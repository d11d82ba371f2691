"""The signal of a claim goes to the processes that listen for it, and to no other."""

from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from agent.domain import errors
from agent.domain.sessions.session import Session
from agent.sessions.claims import LISTEN_SECONDS
from tests.support.agent.hosts import Agent, Host
from tests.support.agent.pools import a_claim, a_pool, kept_full, ordered, ready
from tests.support.fake_clock import until_idle
from tests.support.fake_processes import FakeProcess
from tiltyard.contract import EndReason, State

USR1 = 1 << 9


async def a_standby(agent: Agent, **masks: Any) -> tuple[Session, FakeProcess]:
    """A ready standby, and its program, which would end by the signal if it had no handler."""
    async with kept_full(agent):
        await ordered(agent, a_pool(1, claim_signal="SIGUSR1"))
    [standby] = ready(agent)
    game = agent.engine.program_of(standby.container)
    game.ends_by |= {"SIGUSR1"}
    game.member = replace(game.member, **{"caught": 0, **masks})
    return standby, game


async def test_game_gets_the_signal_once_it_has_a_handler(agent: Agent) -> None:
    standby, game = await a_standby(agent)
    claimed = await agent.warm_pools.claim(standby.internal_id, a_claim())
    assert claimed.spec.identity.session_id == "m1"
    await agent.clock.advance(3)
    assert game.got == []
    game.member = replace(game.member, caught=USR1)
    game.ends_by -= {"SIGUSR1"}
    await agent.clock.advance(1)
    assert game.got == ["SIGUSR1"]
    found = agent.now(standby.internal_id)
    assert found.state is State.RUNNING
    assert found.claim is not None
    assert found.claim.notified
    assert found.claim.signal_missed == ""
    await agent.clock.advance(LISTEN_SECONDS)
    assert game.got == ["SIGUSR1"]


@pytest.mark.parametrize(
    ("masks", "why"),
    [
        ({}, "no process has a handler for it"),
        ({"ignored": USR1}, "the game ignores it"),
        ({"ignored": USR1, "blocked": USR1}, "the game ignores it"),
    ],
)
async def test_game_that_never_listens_is_not_signalled_and_its_report_says_so(
    agent: Agent, masks: dict[str, int], why: str
) -> None:
    standby, game = await a_standby(agent, **masks)
    await agent.warm_pools.claim(standby.internal_id, a_claim())
    await agent.clock.advance(LISTEN_SECONDS + 1)
    assert game.got == []
    recorded = agent.recorded(standby.internal_id)
    assert recorded.claim is not None
    assert recorded.claim.notified
    assert recorded.claim.signal_missed == why
    ended = await agent.sessions.stop(standby.internal_id, EndReason.STOPPED)
    assert ended.detail == f"its claim signal was not sent: {why}"


async def test_only_processes_that_handle_the_signal_get_it(agent: Agent) -> None:
    standby, script = await a_standby(agent)
    game = agent.engine.add_process(standby.container, "game")
    await agent.warm_pools.claim(standby.internal_id, a_claim())
    await until_idle()
    assert script.got == []
    assert game.got == ["SIGUSR1"]


async def test_game_that_blocks_the_signal_to_read_it_gets_it(agent: Agent) -> None:
    standby, game = await a_standby(agent, blocked=USR1)
    game.ends_by -= {"SIGUSR1"}
    await agent.warm_pools.claim(standby.internal_id, a_claim())
    await until_idle()
    assert game.got == ["SIGUSR1"]


async def test_restarted_agent_looks_for_a_listener_again(host: Host) -> None:
    async with host() as agent:
        standby, game = await a_standby(agent)
        await agent.warm_pools.claim(standby.internal_id, a_claim())
        await agent.clock.advance(1)
    async with host() as agent:
        await agent.clock.advance(LISTEN_SECONDS - 1)
        assert game.got == []
        game.member = replace(game.member, caught=USR1)
        game.ends_by -= {"SIGUSR1"}
        await agent.clock.advance(0.5)
        assert game.got == ["SIGUSR1"]


async def test_stop_is_not_delayed_by_a_game_that_does_not_listen(agent: Agent) -> None:
    standby, game = await a_standby(agent)
    await agent.warm_pools.claim(standby.internal_id, a_claim())
    ended = await agent.sessions.stop(standby.internal_id, EndReason.STOPPED)
    assert game.got == ["SIGTERM"]
    assert ended.state is State.EXITED
    assert ended.detail == "its claim signal was not sent: no process has a handler for it"


async def test_claim_is_answered_while_processes_cannot_be_seen(agent: Agent) -> None:
    standby, game = await a_standby(agent, caught=USR1)
    unreadable = errors.EngineError("see the processes of a container", "as scripted")
    with mock.patch.object(agent.engine, "processes", side_effect=unreadable):
        await agent.warm_pools.claim(standby.internal_id, a_claim())
        await agent.clock.advance(LISTEN_SECONDS + 1)
    assert game.got == []
    claim = agent.now(standby.internal_id).claim
    assert claim is not None
    assert claim.signal_missed == "it could not be sent"
