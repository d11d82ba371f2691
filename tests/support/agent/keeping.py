"""Agents that keep prepared containers."""

import contextlib
from collections.abc import AsyncIterator, Sequence

from agent.domain.containers.engine import LABEL_PREPARED, Container
from agent.domain.kept.preparation import Discard
from agent.domain.kept.prepared import Prepared
from agent.sessions.prepared_containers import PreparedContainers
from tests.support.agent.hosts import Agent, Host, until
from tests.support.agent.samples import a_spec, an_id
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


class Keeping:
    """The keeper of an agent, with what tests ask about it."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.keeper = agent.prepared

    @property
    def waiting(self) -> Sequence[Container]:
        """The prepared containers that wait, by the engine."""
        return waiting(self.agent)

    @property
    def all(self) -> Sequence[Container]:
        """The containers that were prepared, by the engine, also those that sessions have."""
        found = self.agent.engine.containers(self.agent.runtime.agent_id)
        return [each for each in found if LABEL_PREPARED in each.labels]

    @property
    def accounts(self) -> list[str]:
        """The account of each container that waits, sorted."""
        return sorted(each.template.spec.identity.account for each in self.keeper.stock)

    def discarded(self, why: Discard) -> float:
        """How many containers were discarded for a reason."""
        return self.counted("prepared_discarded_total", reason=why.value)

    def counted(self, name: str, **labels: str) -> float:
        """The value of a counter."""
        registry = self.agent.runtime.metrics.registry
        return registry.get_sample_value(f"tiltyard_agent_{name}", labels) or 0.0

    async def compare(self, listed: Sequence[Container]) -> None:
        """Compare with a list of the engine, which may be old."""
        await self.agent.adoption.adopt(listed)
        await until_idle()

    async def ordered(self, *shapes: SessionSpec) -> None:
        """Order shapes, and wait until the agent is idle."""
        self.keeper.set_shapes(shapes)
        await until_idle()

    async def start(self, spec: SessionSpec | None = None, *, count: int = 1) -> None:
        """Start sessions one after the other, then let the agent replace what they took."""
        for _ in range(count):
            await self.agent.sessions.start(an_id(), spec or a_spec())
        await self.agent.clock.advance(0.1)


@contextlib.asynccontextmanager
async def keeping_on(agent: Agent) -> AsyncIterator[Keeping]:
    """Keep prepared containers meanwhile."""
    async with kept_prepared(agent):
        yield Keeping(agent)


async def left_by_a_run(host: Host, *shapes: SessionSpec) -> list[Container]:
    """Run an agent that keeps a container of each of these shapes; return them."""
    async with host(prepared=PREPARED) as agent, keeping_on(agent) as keeping:
        await keeping.ordered(*shapes)
        found = list(keeping.waiting)
    assert len(found) == len(shapes)
    return found
