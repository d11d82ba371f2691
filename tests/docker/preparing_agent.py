"""An agent that keeps prepared containers."""

import contextlib
from collections.abc import Iterator
from typing import Any

from agent.domain.containers.engine import container_name
from tests.docker.killed_agent import PoolAgent
from tests.docker.machine import Machine
from tests.docker.stack import eventually
from tiltyard.agent.v1 import agent_pb2 as pb


class PreparingAgent(PoolAgent):
    """One agent, over all its incarnations, whose prepared containers a test looks at."""

    @property
    def kept(self) -> int:
        """The number of waiting containers that it reports."""
        return sum(shape.kept for shape in self._host().host.prepared)

    def until_kept(self, count: int) -> list[Any]:
        """Wait until it reports this number of waiting containers; return them."""
        eventually(lambda: self.kept == count, f"{count} prepared containers wait")
        return self.prepared_containers()

    def until_renamed(self, session: pb.Session) -> None:
        """Wait until a session's container has its name, which it gets after the answer."""
        name = container_name(session.internal_id)
        eventually(lambda: self.container_of(session).name == name, f"{name} is its name")


@contextlib.contextmanager
def a_preparing_agent(machine: Machine, **settings: object) -> Iterator[PreparingAgent]:
    """An agent that keeps one prepared container after its first session has ended."""
    with PreparingAgent(machine, **{"ports": 8, "prepared": 4, **settings}) as agent:  # type: ignore[arg-type]  # settings are checked by the agent
        first = agent.play()
        agent.discard(first)
        agent.until_kept(1)
        yield agent
