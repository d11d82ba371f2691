"""Agents that keep prepared containers."""

import contextlib
from collections.abc import AsyncIterator, Sequence

from agent.domain.engine import LABEL_PREPARED, Container
from agent.domain.prepared import Prepared
from agent.sessions.prepared_containers import PreparedContainers
from tests.support.agent.hosts import Agent, until
from tests.support.fake_clock import until_idle
from tests.support.tasks import running
from tiltyard.contract import SessionSpec

PREPARED = 8  # The setting of agents that prepare containers: an account has half of it


@contextlib.asynccontextmanager
async def kept_prepared(agent: Agent) -> AsyncIterator[PreparedContainers]:
    """Keep prepared containers meanwhile."""
    keeper = agent.prepared
    async with running(keeper.run()):
        keeper.resume()
        await until_idle()
        yield keeper


async def prepared_for(agent: Agent, spec: SessionSpec) -> Prepared:
    """Let the agent prepare one container for sessions of this shape, and no other."""
    shape = spec.shape
    assert shape is not None
    agent.prepared.set_shapes([shape])
    agent.prepared.look()
    await until(lambda: bool(len(agent.prepared.stock)))
    [prepared] = agent.prepared.stock
    return prepared


def kept_ids(agent: Agent) -> list[str]:
    """Ids of the prepared containers that no start has taken."""
    return [prepared.prepared_id for prepared in agent.prepared.stock]


def waiting(agent: Agent) -> Sequence[Container]:
    """The prepared containers that wait."""
    found = agent.engine.containers(agent.runtime.agent_id)
    return [each for each in found if LABEL_PREPARED in each.labels and each.waits]
