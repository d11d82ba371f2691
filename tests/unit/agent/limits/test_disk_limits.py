import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from agent.domain.containers.engine import container_name
from agent.domain.errors import EngineTimeoutError
from agent.kernel.disks import Disk, Disks
from agent.limits.disk_limits import IDLE_SECONDS, LOOK_LONGEST_SECONDS, LOOK_SECONDS, DiskLimits
from tests.support.agent.hosts import Agent, Host
from tests.support.agent.pools import a_pool, kept_full, ready
from tests.support.agent.samples import MEBIBYTE, a_spec, an_id
from tests.support.fake_clock import until_idle
from tests.support.tasks import running
from tiltyard.contract import EndReason, State
from tiltyard.ends import Limit

LIMIT = 100 * MEBIBYTE
HOSTS_LIMIT = 300 * MEBIBYTE


@contextlib.asynccontextmanager
async def watched(agent: Agent, limit: int = HOSTS_LIMIT) -> AsyncIterator[None]:
    """Measure containers in the background; `limit` is the host's default."""
    settings = agent.runtime.settings.model_copy(update={"session_disk": limit // MEBIBYTE})
    runtime = replace(agent.runtime, settings=settings)
    async with running(DiskLimits(runtime, agent.reservations.disks, agent.sessions).run()):
        await until_idle()
        yield


async def started(agent: Agent, written: int = 0, *, limit: int = 0, restart: bool = True) -> str:
    """Start a session that has `written` this many bytes."""
    spec = a_spec(restart=restart, disk_bytes=limit)
    session = await agent.sessions.start(an_id(), spec)
    agent.engine.find(container_name(session.internal_id)).written = written
    return session.internal_id


def looks(agent: Agent) -> list[str]:
    """The sessions whose containers were measured, in order."""
    names = {session.container: session.internal_id for session in agent.sessions.all()}
    return [names[subject] for call, subject in agent.engine.calls if call == "written_bytes"]


async def test_session_over_its_limit_ends_and_others_do_not(agent: Agent) -> None:
    own = await started(agent, LIMIT + 1, limit=LIMIT)
    default = await started(agent, HOSTS_LIMIT + 1)
    spared = [
        await started(agent, LIMIT, limit=LIMIT),
        await started(agent, HOSTS_LIMIT),
        await started(agent, 10 * HOSTS_LIMIT, limit=20 * HOSTS_LIMIT),
    ]
    async with watched(agent):
        await agent.clock.advance(2 * LOOK_SECONDS)
    for internal_id in (own, default):
        ended = agent.now(internal_id)
        assert ended.state == State.EXITED
        assert ended.end_reason == EndReason.DISK
        assert ended.restart_count == 0
        assert "disk limit" in ended.detail
        assert ended.limits_met == (Limit.DISK,)
    for internal_id in spared:
        assert agent.now(internal_id).state is State.RUNNING


async def test_sessions_without_limits_are_not_measured(agent: Agent) -> None:
    await started(agent, 1000 * HOSTS_LIMIT)
    async with watched(agent, 0):
        await agent.clock.advance(10 * LOOK_SECONDS)
    assert looks(agent) == []


async def test_failed_measurement_ends_no_session(agent: Agent) -> None:
    internal_id = await started(agent, LIMIT + 1, limit=LIMIT)
    agent.engine.fail_next("written_bytes", EngineTimeoutError("written-bytes"))
    async with watched(agent):
        await agent.clock.advance(LOOK_SECONDS + IDLE_SECONDS)
        assert looks(agent) == [internal_id]
        assert agent.now(internal_id).state is State.RUNNING
        await agent.clock.advance(LOOK_SECONDS + IDLE_SECONDS)
        assert agent.now(internal_id).end_reason is EndReason.DISK


async def test_slow_containers_are_measured_less_often(agent: Agent) -> None:
    slow = await started(agent)
    async with watched(agent):
        agent.engine.hold("written_bytes")
        await agent.clock.advance(LOOK_SECONDS + 1)
        await agent.clock.advance(20)
        agent.engine.release("written_bytes")
        cheap = await started(agent)
        await agent.clock.advance(LOOK_LONGEST_SECONDS - 20)
        assert looks(agent).count(slow) == 1
        assert looks(agent).count(cheap) > 5
        await agent.clock.advance(40)
        assert looks(agent).count(slow) == 2


async def test_many_containers_are_measured_less_often(agent: Agent) -> None:
    sessions = {await started(agent) for _ in range(90)}
    async with watched(agent):
        await agent.clock.advance(80)
        assert looks(agent) == []
        await agent.clock.advance(90)
        assert sorted(looks(agent)) == sorted(sessions)


async def test_shrinking_disk_triggers_measurement_of_suspects(host: Host) -> None:
    free = {"docker": 1000 * HOSTS_LIMIT}
    disks = Disks(
        HOSTS_LIMIT,
        Path("/state"),
        lambda path, _: Disk(path, free.get(path.name, 0), HOSTS_LIMIT),
    )
    disks.watch("/docker")
    async with host(disks=disks) as agent, watched(agent):
        free["state"] = free["docker"]
        disks.look()
        small = await started(agent, limit=LIMIT)
        large = await started(agent)
        await host.clock.advance(LOOK_SECONDS + IDLE_SECONDS)
        agent.engine.calls.clear()

        # Within the limit of the small one, beyond that of the large one.
        free["docker"] -= LIMIT + 1
        disks.look()
        await host.clock.advance(LOOK_SECONDS / 2)
        assert set(looks(agent)) == {small}

        # The disk is low: shorter intervals, the largest first.
        host.engine.find(container_name(large)).written = 5
        await host.clock.advance(LOOK_SECONDS + IDLE_SECONDS)
        agent.engine.calls.clear()
        free["docker"] = 2 * HOSTS_LIMIT - 1
        disks.look()
        await host.clock.advance(LOOK_SECONDS / 2)
        assert looks(agent)[:2] == [large, small]
        assert len(looks(agent)) >= 4


async def test_session_over_its_limit_ends_while_restarting(agent: Agent) -> None:
    internal_id = await started(agent, LIMIT + 1, limit=LIMIT)
    async with watched(agent):
        agent.engine.hold("start")
        agent.engine.end(container_name(internal_id), 1)
        await agent.clock.advance(2 * LOOK_SECONDS)
        assert agent.now(internal_id).state is State.RESTARTING
        agent.engine.release("start")
        life = await agent.reached(internal_id)
    assert life.session.end_reason is EndReason.DISK


async def test_standby_over_its_limit_is_replaced(agent: Agent) -> None:
    async with kept_full(agent, a_pool(1, disk_bytes=LIMIT)), watched(agent):
        [standby] = ready(agent)
        agent.engine.find(standby.container).written = LIMIT + 1
        await agent.clock.advance(2 * LOOK_SECONDS)
        [replacement] = ready(agent)
        assert replacement.internal_id != standby.internal_id
        assert agent.directories() == [replacement.internal_id]
