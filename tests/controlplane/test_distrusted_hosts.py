"""A host is believed only about what was given to it."""

import copy
import uuid
from pathlib import Path

import pytest

from tests.controlplane.warm_pools import becomes_ready, keep
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.controlplane.system import System, eventually
from tiltyard.agent.v1 import agent_pb2


async def report_standby(system: System, liar: FakeAgent, honest: FakeAgent) -> None:
    """Let a host report a ready standby like that of another host."""
    [standby] = copy.deepcopy(honest.standbys)
    standby.internal_id = str(uuid.uuid4())
    liar.sessions[standby.internal_id] = standby
    liar.change(standby.internal_id)
    await eventually(lambda: system.link(liar.name).session(standby.internal_id) is not None)


def claim_order(liar: FakeAgent, pool_id: str, *, size: int) -> None:
    """Let a host report an order of the pool that is newer than any, and follow none."""
    liar.before_order = liar.hang
    order = agent_pb2.SetWarmPoolRequest(pool_id=pool_id, size=size, revision=2**60)
    liar.pools[pool_id] = order
    liar.change_host()


@pytest.mark.parametrize(
    ("place", "claimed_size"),
    [
        (("elsewhere", "default"), 3),
        (("local", "other"), 3),
        (("local", "default"), 0),
    ],
)
async def test_standbys_of_a_host_without_an_order_for_their_pool_are_not_claimed(
    tmp_path: Path, place: tuple[str, str], claimed_size: int
) -> None:
    system = System(tmp_path, agents=2, in_order=True, node_pools=("default", "other"))
    honest, liar = system.agents
    system.places[liar.name] = place
    async with system:
        await system.make_application(tag=None)
        await system.enable("v1", pulled_by=[honest])
        await keep(system, size=1)
        [(pool_id,)] = await system.rows("SELECT id FROM warm_pool")
        claim_order(liar, pool_id, size=claimed_size)
        await report_standby(system, liar, honest)
        for _ in range(2):
            [standby] = honest.standbys
            standby.ClearField("ready_time")
            honest.change(standby.internal_id)
            await becomes_ready(system, 0)
            start = await system.start(env={"SECRET": "of alice"})
            assert start.status == 201
            assert liar.claimed == []
            assert liar.started == []
            honest.bind(standby.internal_id)
            await becomes_ready(system, 1)
            await system.restart()
            await eventually(lambda: system.link(liar.name).reconciled)
