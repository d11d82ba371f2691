import asyncio
import dataclasses
import stat
from typing import Any
from unittest import mock

import pytest

from agent.changes.looking import PASS_SECONDS, REST_FACTOR
from agent.domain.errors import EngineError, InvalidArgumentError, StaleRevisionError
from agent.sessions.warm_pools import REMOVED_KEPT
from agent.settings.policy import Policy
from agent.state.drain import DrainOrder
from tests.support.agent import pools
from tests.support.agent.hosts import Agent, Host, assert_nothing_is_left
from tests.support.agent.pools import POOL, a_pool, kept_full, ordered, ready, standbys
from tests.support.agent.samples import IMAGE, a_spec, an_id
from tests.support.fake_clock import until_idle
from tiltyard.contract import EndReason, PortRequest, Protocol, Resources, State
from tiltyard.runtime.clock import DUTY_CYCLE

REMOVED = a_pool(0, revision=99)  # The order that removes a pool


async def test_new_pool_is_filled_at_once_with_standbys_that_have_no_ttl(agent: Agent) -> None:
    async with kept_full(agent, a_pool(5, ttl=60.0, env={"A": "$TILTYARD_SESSION_ID"})):
        found = ready(agent)
        assert len(found) == 5
        for standby in found:
            identity = standby.spec.identity
            assert identity.session_id == standby.internal_id
            assert identity.ticket == ""
            assert identity.account == "acme"
            assert identity.labels == {"mode": "duel"}
            assert standby.injected_env["TILTYARD_SESSION_ID"] == standby.internal_id
            read = pools.session_json(agent, standby)
            assert read["id"] == standby.internal_id
            assert read["standby"] is True
            assert standby.deadline is None
            assert standby.spec.ttl is None
        assert agent.reservations.capacity.reserved == Resources(5 * 10**8, 5 * 32 * 2**20)
        assert agent.reservations.ports.free(Protocol.UDP) == 95
        assert agent.runtime.deadlines.next_due() is None


async def test_stopped_standby_is_replaced_and_leaves_nothing(agent: Agent) -> None:
    async with kept_full(agent, a_pool(1)):
        [stopped] = ready(agent)
        await agent.sessions.stop(stopped.internal_id, EndReason.STOPPED)
        await until_idle()
        [replacement] = ready(agent)
        assert replacement.internal_id != stopped.internal_id
        assert agent.directories() == [replacement.internal_id]


async def test_older_standbys_are_stopped_when_newer_ones_do_not_fit(host: Host) -> None:
    async with host(max_sessions=3) as agent, kept_full(agent, a_pool(3)):
        await ordered(agent, a_pool(3, revision=2, args=("--new",)))
        await host.clock.advance(5)
        assert pools.revisions(agent) == [2, 2, 2]
        assert agent.warm_pools.warnings == ()


async def test_standby_that_did_not_fit_is_started_later(host: Host) -> None:
    async with host(max_sessions=3) as agent, kept_full(agent):
        session = await agent.sessions.start(an_id(), a_spec())
        await ordered(agent, a_pool(3))
        assert len(ready(agent)) == 2
        [warning] = agent.warm_pools.warnings
        cause = "cannot reserve 1 sessions: 0 free"
        assert warning == f"warm pool {POOL}: 2 of 3 ready: {cause}"
        await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
        await until_idle()
        assert len(ready(agent)) == 3
        assert agent.warm_pools.warnings == ()


@mock.patch("agent.sessions.starting.START_WAIT_SECONDS", None)
async def test_standbys_leave_a_quarter_of_the_start_slots_to_sessions(host: Host) -> None:
    async with host(start_slots=12) as agent, kept_full(agent):
        host.engine.hold("start")
        await ordered(agent, a_pool(8))
        assert len(standbys(agent)) == 5
        players = [asyncio.create_task(agent.sessions.start(an_id(), a_spec())) for _ in range(2)]
        await until_idle()
        assert host.engine.count("start") == 6
        host.engine.release("start")
        await asyncio.gather(*players)
        await until_idle()
        assert len(ready(agent)) == 8


async def test_one_pass_fills_a_pool_unless_a_start_fails_or_the_order_changes(host: Host) -> None:
    async with host(start_slots=4) as agent:
        await agent.warm_pools.set(a_pool(8))
        agent.warm_pools.look()
        await until_idle()
        assert len(ready(agent)) == 8

        await agent.warm_pools.set(a_pool(20, revision=2))
        agent.engine.fail_next("create", EngineError("create", "no"))
        agent.engine.hold("start")
        agent.warm_pools.look()
        await until_idle()  # one has failed, another is still starting
        agent.engine.release("start")
        await until_idle()
        assert len(standbys(agent)) == 9

        agent.warm_pools.look()
        await agent.clock.advance(1)
        agent.engine.hold("start")
        agent.warm_pools.look()
        await agent.warm_pools.set(a_pool(11, revision=3))
        agent.engine.release("start")
        await until_idle()
        assert len(ready(agent)) == 11
        await agent.warm_pools.close()


async def test_crashed_standby_is_replaced_and_not_restarted(agent: Agent) -> None:
    async with kept_full(agent, a_pool(2, restart=True)):
        crashed, kept = ready(agent)
        pools.crash(agent, crashed, 3)
        await until_idle()
        assert ready(agent) == [kept]
        [warning] = agent.warm_pools.warnings
        assert warning == f"warm pool {POOL}: 1 of 2 ready: it ended by itself: exited, code 3"
        life = agent.sessions.life(crashed.internal_id)  # kept for its log
        assert life.session.state == State.EXITED
        assert life.session.restart_count == 0
        await agent.clock.advance(1)
        assert len(ready(agent)) == 2


async def test_crashing_pool_backs_off(agent: Agent) -> None:
    async with kept_full(agent, a_pool(3)):
        for delay in (1, 2, 4, 8, 16, 32, 60, 60, 1):
            await agent.clock.advance(600 if delay == 1 else 0)  # long enough to be forgotten
            for standby in ready(agent):
                pools.crash(agent, standby)
            await until_idle()
            ended = [session for session in agent.sessions.each() if session.state.ended]
            assert len(ended) == 1  # the last one is kept for its log
            await agent.clock.advance(delay - 0.5)
            assert standbys(agent) == []
            await agent.clock.advance(0.5)
            assert len(ready(agent)) == 3
        await ordered(agent, REMOVED)
        await assert_nothing_is_left(agent)


async def test_standby_refused_by_the_engine_is_retried(agent: Agent) -> None:
    async with kept_full(agent):
        agent.engine.fail_next("create", EngineError("create", "no"), times=3)
        await ordered(agent, a_pool(1))
        for seconds in (1, 2, 4):
            assert standbys(agent) == []
            assert "cannot create: no" in agent.warm_pools.warnings[0]
            await agent.clock.advance(seconds)
        assert len(ready(agent)) == 1
        assert agent.warm_pools.warnings == ()
        assert agent.directories() == [ready(agent)[0].internal_id]


async def test_pool_refused_by_the_policy_is_reported_once(host: Host) -> None:
    async with host(policy=Policy(max_cpu=0.5)) as agent, kept_full(agent, a_pool(1)):
        sequence = agent.runtime.feed.sequence
        await host.clock.advance(60)
        assert "this host's policy has max_cpu = 0.5" in agent.warm_pools.warnings[0]
        assert agent.runtime.feed.sequence == sequence


async def test_new_spec_resets_the_back_off(agent: Agent) -> None:
    async with kept_full(agent):
        agent.engine.cannot_run.add(IMAGE)
        await ordered(agent, a_pool(1))
        assert ready(agent) == []
        agent.engine.cannot_run.clear()
        await ordered(agent, a_pool(1, revision=2, args=("--fixed",)))
        assert len(ready(agent)) == 1
        assert agent.warm_pools.warnings == ()


async def test_drained_host_stops_standbys_until_the_drain_is_cancelled(agent: Agent) -> None:
    async with kept_full(agent, a_pool(3)):
        first = ready(agent)[0]
        await agent.warm_pools.claim(first.internal_id, pools.a_claim())
        await until_idle()
        empty = await agent.sessions.drains.order(DrainOrder(1, draining=True))
        assert empty == (None, 1)  # standbys do not count
        await until_idle()
        assert standbys(agent) == []
        assert agent.directories() == [first.internal_id]
        await agent.sessions.drains.order(DrainOrder(2, draining=False))
        await until_idle()
        assert len(ready(agent)) == 3


async def test_pools_survive_a_restart(host: Host) -> None:
    order = a_pool(2, revision=7, claim_signal="SIGUSR1", env={"KEY": "secret"})
    async with host() as agent, kept_full(agent, order):
        before = [standby.internal_id for standby in ready(agent)]
        asked = agent.warm_pools.pools
        assert stat.S_IMODE((agent.records.pools_dir / f"{POOL}.json").stat().st_mode) == 0o600
    async with host() as agent, kept_full(agent):
        assert agent.warm_pools.pools == asked
        assert [standby.internal_id for standby in ready(agent)] == before
        with pytest.raises(StaleRevisionError, match="7 is applied already"):
            await agent.warm_pools.set(a_pool(5, revision=6))
        await agent.warm_pools.set(a_pool(5, revision=7))  # a repeat
        await until_idle()
        assert len(standbys(agent)) == 2


async def test_standbys_that_ended_while_the_agent_was_down_are_replaced(host: Host) -> None:
    async with host() as agent, kept_full(agent, a_pool(2, restart=True)):
        before = ready(agent)
    for standby in before:
        host.engine.end(standby.container, 137)
    host.clock.reboot()
    async with host() as agent:
        await until_idle()
        assert standbys(agent) == []
        async with kept_full(agent):
            await host.clock.advance(1)
            replacements = [standby.internal_id for standby in ready(agent)]
            assert len(replacements) == 2
            assert agent.directories() == sorted(replacements)


@pytest.mark.parametrize("content", ["", "{}"])
async def test_unreadable_pool_is_ignored(host: Host, content: str) -> None:
    async with host() as agent, kept_full(agent, a_pool(1)):
        (agent.records.pools_dir / f"{POOL}.json").write_text(content)
    async with host() as agent, kept_full(agent):
        assert agent.warm_pools.pools == ()
        assert standbys(agent) == []
        await ordered(agent, a_pool(1))
        assert len(ready(agent)) == 1


async def test_late_order_of_a_removed_pool_is_rejected(host: Host) -> None:
    async with host() as agent:
        await agent.warm_pools.set(a_pool(0, revision=5))
    async with host() as agent:
        with pytest.raises(StaleRevisionError):
            await agent.warm_pools.set(a_pool(3, revision=4))
        for number in range(REMOVED_KEPT):
            pool = f"{number:08d}-0000-4000-8000-000000000000"
            await agent.warm_pools.set(a_pool(0, revision=6, pool=pool))
        assert len(agent.warm_pools.pools) == REMOVED_KEPT
        assert len(list(agent.records.pools_dir.iterdir())) == REMOVED_KEPT


@pytest.mark.parametrize(
    ("order", "field"),
    [
        (a_pool(1, pool="../x"), "pool_id"),
        (a_pool(1, env={"TILTYARD_HOST": "x"}), "env"),
        (dataclasses.replace(a_pool(0), size=1), "spec"),
        (a_pool(1, ports=(PortRequest(7777, Protocol.UDP, pinned=20005),)), "spec.ports"),
        (a_pool(1, claim_signal="SIGNONE"), "claim_signal"),
        (a_pool(1, claim_signal="SIGKILL"), "claim_signal"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_rejects_invalid_order(agent: Agent, order: Any, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        await agent.warm_pools.set(order)
    assert refused.value.field == field
    assert agent.warm_pools.pools == ()


async def test_another_size_replaces_no_standby(agent: Agent) -> None:
    async with kept_full(agent, a_pool(2)):
        before = {standby.internal_id for standby in ready(agent)}
        await ordered(agent, a_pool(3, revision=2))
        assert before < {standby.internal_id for standby in ready(agent)}
        assert pools.revisions(agent) == [1, 1, 1]


async def test_order_of_one_pool_leaves_the_others(agent: Agent) -> None:
    async with kept_full(agent, a_pool(2)):
        await ordered(agent, a_pool(1, pool=pools.OTHER))
        before = ready(agent)
        assert len(ready(agent, pools.OTHER)) == 1
        await ordered(agent, a_pool(0, revision=2, pool=pools.OTHER))
        assert ready(agent) == before
        assert ready(agent, pools.OTHER) == []


async def test_each_standby_has_its_own_gpu(host: Host) -> None:
    async with host(gpus=("0", "1")) as agent:
        needs_gpu = Resources(10**8, 2**25, gpus=1)
        async with kept_full(agent, a_pool(3, reservation=needs_gpu)):
            assert sorted(standby.gpu_ids for standby in ready(agent)) == [("0",), ("1",)]
            assert "cannot reserve 1 GPUs: 0 free" in agent.warm_pools.warnings[0]


async def test_image_of_a_pool_is_in_use(agent: Agent) -> None:
    await agent.warm_pools.set(a_pool(1))
    assert agent.warm_pools.uses_image(IMAGE)
    await agent.warm_pools.set(REMOVED)
    assert not agent.warm_pools.uses_image(IMAGE)


async def test_failed_removal_of_a_standby_is_retried(agent: Agent) -> None:
    async with kept_full(agent, a_pool(1)):
        agent.engine.fail_next("remove", EngineError("remove", "no"))
        await ordered(agent, REMOVED)
        assert len(agent.directories()) == 1
        await agent.clock.advance(1)
        await assert_nothing_is_left(agent)


@pytest.mark.parametrize(
    ("took", "rest"),
    [
        (0.125, 0.125 * REST_FACTOR * DUTY_CYCLE),
        (30.0, PASS_SECONDS),
    ],
    ids=["long", "stood-still"],
)
async def test_slow_passes_leave_the_event_loop_free(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, took: float, rest: float
) -> None:
    look = mock.Mock(side_effect=lambda: agent.clock.stall(took))
    monkeypatch.setattr(agent.warm_pools, "look", look)
    async with kept_full(agent):
        assert look.call_count == 1
        agent.runtime.feed.host_changed()
        await agent.clock.advance(rest - 0.1)
        assert look.call_count == 1
        await agent.clock.advance(0.1)
        assert look.call_count == 2
