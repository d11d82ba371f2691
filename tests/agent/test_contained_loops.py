"""An unexpected error about one session in a loop over all of them ends nothing else."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.kernel import usage
from agent.limits.disk_limits import LOOK_SECONDS, DiskLimits
from agent.network.tls_ports import TlsPorts
from agent.sessions import cleanup
from agent.sessions.life import Life
from agent.sessions.manager import SessionManager
from tests.agent.contained import started
from tests.support.agent.hosts import Agent
from tests.support.agent.pools import OTHER, POOL, a_pool, kept_full
from tests.support.agent.samples import an_id
from tests.support.agent.tls_served import echo, is_echoed, serving
from tests.support.fake_engine import FakeEngine
from tests.support.tasks import running
from tiltyard.contract import EndReason

# -- loops over all sessions ----------------------------------------------------------------------


async def test_error_while_the_usage_of_a_session_is_read(agent: Agent, fails: Any) -> None:
    first = await started(agent)
    second = await started(agent, "other")
    await agent.ready(second.internal_id)
    group = str(first.process.pid) if first.process else ""
    agent.cgroups.use(second.process, cpu_seconds=1.0, memory_bytes=1)
    async with running(agent.usage.run()):
        failed = fails(usage.Counters, "read", f"/docker/{group}/", times=100)
        await agent.clock.advance(3.0)
        agent.cgroups.use(second.process, cpu_seconds=2.0, memory_bytes=1)
        await agent.clock.advance(6.0)
        agent.cgroups.remove(second.process)
        assert len(failed) > 1
    ended = await agent.sessions.stop(second.internal_id, EndReason.STOPPED)
    assert (ended.earlier_usage | ended.run_usage).cpu_seconds == 2.0


async def test_error_while_the_disk_use_of_a_session_is_measured(agent: Agent, fails: Any) -> None:
    first = await started(agent, disk_bytes=1000)
    second = await started(agent, "other", disk_bytes=1000)
    for session in (first, second):
        agent.engine.find(session.container).written = 2000
    failed = fails(FakeEngine, "written_bytes", first.container)
    async with running(DiskLimits(agent.runtime, agent.reservations.disks, agent.sessions).run()):
        await agent.clock.advance(2 * LOOK_SECONDS)
        assert failed
        assert agent.now(second.internal_id).end_reason is EndReason.DISK
        await agent.clock.advance(2 * LOOK_SECONDS)
        assert agent.now(first.internal_id).end_reason is EndReason.DISK


async def test_error_while_a_container_is_removed(agent: Agent, fails: Any) -> None:
    first = await agent.ended()
    second = await agent.ended()
    failed = fails(cleanup, "remove_container", first.internal_id)
    await agent.pass_over(after=agent.runtime.settings.container_retention_hours * 3600 + 1)
    assert failed
    assert agent.now(second.internal_id).container_removed
    await agent.pass_over()
    assert agent.now(first.internal_id).container_removed


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (SessionManager, "start_standby"),
        (Life, "wait_started"),
    ],
)
async def test_error_about_a_standby_leaves_other_pools_full(
    agent: Agent, fails: Any, owner: object, name: str
) -> None:
    fails(owner, name, POOL)
    await agent.warm_pools.set(a_pool(1))
    async with kept_full(agent, a_pool(1, pool=OTHER)):
        await agent.clock.advance(30)
        live = [each.standby for each in agent.sessions.each() if not each.state.ended]
    assert sorted(each.pool for each in live if each) == [POOL, OTHER]


async def test_error_while_a_standby_is_removed(agent: Agent, fails: Any) -> None:
    async with kept_full(agent, a_pool(1)):
        await agent.clock.advance(1)
        [standby] = agent.sessions.each()
        failed = fails(SessionManager, "stop", standby.internal_id)
        await agent.warm_pools.set(a_pool(0, revision=2))
        await agent.clock.advance(30)
        assert failed
        assert list(agent.sessions.each()) == []


async def test_error_about_the_tls_ports_of_a_session(fails: Any, tmp_path: Path) -> None:
    async with serving(tmp_path, echo) as served:
        odd = replace(served.session, internal_id=an_id())
        served.tls.adopt(odd)  # its port is in use
        failed = fails(TlsPorts, "follow", odd.internal_id)
        await served.tls.look()
        assert failed
        async with served.player() as player:
            await is_echoed(player)
