"""GPUs from the setting to the container: each is one session's at a time, over restarts too."""

import pytest

from agent.domain.errors import NoCapacityError
from tests.support.agent.hosts import Host
from tests.support.agent.samples import MEBIBYTE, a_spec, an_id
from tiltyard.contract import EndReason, Resources

GPUS = ("GPU-1", "GPU-2")
ONE = a_spec(
    reservation=Resources(10**8, 32 * MEBIBYTE, 1), limits=Resources(10**9, 64 * MEBIBYTE, 1)
)


async def test_each_session_has_a_device_of_its_own_also_after_a_restart(host: Host) -> None:
    async with host(gpus=GPUS) as agent:
        sessions = [await agent.sessions.start(an_id(), ONE) for _ in GPUS]
        assert [each.gpu_ids for each in sessions] == [("GPU-1",), ("GPU-2",)]
        with pytest.raises(NoCapacityError):
            await agent.sessions.start(an_id(), ONE)
        assert (await agent.sessions.start(an_id(), a_spec())).gpu_ids == ()
    async with host(gpus=GPUS) as agent:
        with pytest.raises(NoCapacityError):
            await agent.sessions.start(an_id(), ONE)
        await agent.sessions.stop(sessions[0].internal_id, EndReason.STOPPED)
        assert (await agent.sessions.start(an_id(), ONE)).gpu_ids == ("GPU-1",)
