"""Agents that keep prepared containers."""

import contextlib
from collections.abc import AsyncIterator, Sequence

from agent.domain.engine import LABEL_PREPARED, Container
from agent.sessions.prepared_containers import PreparedContainers
from tests.support.agent.hosts import Agent
from tests.support.fake_clock import until_idle
from tests.support.tasks import running


@contextlib.asynccontextmanager
async def kept_prepared(agent: Agent) -> AsyncIterator[PreparedContainers]:
    """Keep prepared containers meanwhile."""
    keeper = PreparedContainers(
        agent.runtime, agent.reservations, has_image=lambda image: image in agent.images.here
    )
    async with running(keeper.run()):
        keeper.resume()
        await until_idle()
        yield keeper
    await keeper.close()


def waiting(agent: Agent) -> Sequence[Container]:
    """The prepared containers that wait."""
    found = agent.engine.containers(agent.runtime.agent_id)
    return [each for each in found if LABEL_PREPARED in each.labels and each.waits]
