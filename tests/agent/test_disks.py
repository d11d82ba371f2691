"""Disks that fill up: starts are refused in time, and what can be spared goes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.errors import DiskFull
from agent.sessions.disks import Disk, Disks, measured
from agent.sessions.session import EndReason, State
from tests.agent.hosts import Agent, an_agent, until_sealed
from tests.agent.samples import a_spec, an_id
from tests.fakes import FakeClock, FakeEngine

RESERVE = 1000


class Filling:
    """Disks with as much free as a test says."""

    def __init__(self) -> None:
        self.free: dict[str, int] = {}

    def __call__(self, path: Path, reserve_bytes: int) -> Disk:
        return Disk(path, self.free.get(path.name, 10 * RESERVE), reserve_bytes)


@pytest.fixture
def filling() -> Filling:
    return Filling()


@pytest.fixture
async def agent(
    tmp_path: Path, engine: FakeEngine, clock: FakeClock, filling: Filling
) -> AsyncIterator[Agent]:
    disks = Disks(RESERVE, Path("/state"), filling)
    disks.watch("/docker")
    async with an_agent(tmp_path, engine, clock, disks=disks) as agent:
        yield agent


@pytest.mark.parametrize("disk", ["state", "docker"])
async def test_f34_a_disk_that_is_short_refuses_starts_until_there_is_room(
    agent: Agent, filling: Filling, disk: str
) -> None:
    running = await agent.sessions.start(an_id(), a_spec())
    filling.free[disk] = RESERVE - 1
    with agent.host.feed.subscribe() as subscription:
        await agent.pass_over()
        assert (await subscription.take(0)).host
    with pytest.raises(DiskFull, match=f"/{disk}"):
        await agent.sessions.start(an_id(), a_spec())
    assert len(agent.sessions.all()) == 1
    assert agent.directories() == [running.internal_id]
    [warning] = agent.host.disks.warnings
    assert f"/{disk}" in warning
    filling.free[disk] = RESERVE
    await agent.pass_over()
    assert (await agent.sessions.start(an_id(), a_spec())).state is State.RUNNING
    assert agent.host.disks.warnings == ()


async def test_a_low_disk_takes_the_oldest_ended_containers_first(
    agent: Agent, filling: Filling, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.sessions.adoption.SPARED_AT_ONCE", 2)
    running = await agent.sessions.start(an_id(), a_spec())
    ended = []
    for _ in range(3):
        session = await agent.sessions.start(an_id(), a_spec())
        await clock.advance(1)
        await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
        await until_sealed(agent, session.internal_id)
        ended.append(session.internal_id)
    await agent.pass_over()
    assert _removed(agent) == set()
    filling.free["docker"] = 2 * RESERVE - 1
    await agent.pass_over()
    assert _removed(agent) == set(ended[:2])
    filling.free["docker"] = 2 * RESERVE
    await agent.pass_over()
    assert _removed(agent) == set(ended[:2])
    assert agent.sessions.life(running.internal_id).session.state is State.RUNNING
    assert agent.records.log_path(ended[0]).exists()  # the log has a time of its own


async def test_a_disk_that_cannot_be_seen_refuses_nothing(
    tmp_path: Path, engine: FakeEngine, clock: FakeClock
) -> None:
    disks = Disks(RESERVE, tmp_path / "none")
    async with an_agent(tmp_path, engine, clock, disks=disks) as agent:
        assert (await agent.sessions.start(an_id(), a_spec())).state is State.RUNNING


def test_the_reserve_is_at_most_a_twentieth_of_a_disk(tmp_path: Path) -> None:
    disk = measured(tmp_path, 1 << 62)
    assert 0 < disk.reserve_bytes < 1 << 62
    assert measured(tmp_path, 5).reserve_bytes == 5
    assert disk.free_bytes > 0
    assert not measured(tmp_path, 0).is_short


def _removed(agent: Agent) -> set[str]:
    return {each.internal_id for each in agent.sessions.all() if each.container_removed}
