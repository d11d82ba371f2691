"""Limits that a container gets at its creation."""

import pytest

from tests.support.agent.hosts import Agent
from tests.support.agent.samples import MEBIBYTE, a_spec, an_id
from tiltyard.contract import Resources

CORE = 10**9


async def test_limit_of_processes_is_the_hosts_by_default(agent: Agent) -> None:
    await agent.sessions.start(an_id(), a_spec())
    [container] = agent.engine.all
    assert container.spec.pids == 512


async def test_limit_of_processes_of_the_application_counts(agent: Agent) -> None:
    await agent.sessions.start(an_id(), a_spec(pids=20))
    [container] = agent.engine.all
    assert container.spec.pids == 20


@pytest.mark.parametrize(
    ("ram", "shm"),
    [
        (16, 64),
        (128, 64),
        (129, 64.5),
        (1024, 512),
    ],
)
async def test_shared_memory_is_half_of_the_memory_by_default(
    agent: Agent, ram: int, shm: float
) -> None:
    limits = Resources(CORE, ram * MEBIBYTE)
    await agent.sessions.start(an_id(), a_spec(limits=limits, reservation=limits))
    [container] = agent.engine.all
    assert container.spec.shm_bytes == shm * MEBIBYTE


async def test_shared_memory_of_the_application_counts(agent: Agent) -> None:
    await agent.sessions.start(an_id(), a_spec(shm_bytes=5 * MEBIBYTE))
    [container] = agent.engine.all
    assert container.spec.shm_bytes == 5 * MEBIBYTE
