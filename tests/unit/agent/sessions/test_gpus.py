"""GPUs from the setting to the container: each is one session's at a time, over restarts too."""

from pathlib import Path

import pytest

from agent.domain.errors import NoCapacityError
from tests.support.agent.hosts import Agent, an_agent
from tests.support.agent.samples import MEBIBYTE, a_spec, an_id
from tests.support.fakes import FakeClock, FakeEngine
from tiltyard.contract import EndReason, Resources

GPUS = ("GPU-1", "GPU-2")
ONE = a_spec(
    reservation=Resources(10**8, 32 * MEBIBYTE, 1), limits=Resources(10**9, 64 * MEBIBYTE, 1)
)


def devices(agent: Agent) -> dict[str, tuple[str, ...]]:
    """The devices that each live container was asked for with, by its name."""
    return {held.name: held.spec.gpu_ids for held in agent.engine.all}


async def test_each_session_gets_a_device_of_its_own(tmp_path: Path) -> None:
    engine, clock = FakeEngine(), FakeClock()
    async with an_agent(tmp_path, engine, clock, gpus=GPUS) as agent:
        first, second = an_id(), an_id()
        for internal_id in (first, second):
            await agent.sessions.start(internal_id, ONE)
        assert sorted(devices(agent).values()) == [("GPU-1",), ("GPU-2",)]
        with pytest.raises(NoCapacityError):
            await agent.sessions.start(an_id(), ONE)
        await agent.sessions.start(an_id(), a_spec())
        assert min(devices(agent).values()) == ()
    async with an_agent(tmp_path, engine, clock, gpus=GPUS) as agent:
        assert agent.reservations.capacity.reserved.gpus == 2
        with pytest.raises(NoCapacityError):
            await agent.sessions.start(an_id(), ONE)
        await agent.sessions.stop(first, EndReason.STOPPED)
        assert agent.reservations.capacity.reserved.gpus == 1
        again = await agent.sessions.start(an_id(), ONE)
        assert again.gpu_ids == ("GPU-1",)
