"""Settings and components shared by all sessions of a host."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol as Interface

from agent.changes.feed import Feed
from agent.domain.addresses import Addressed
from agent.domain.clock import HostClock
from agent.domain.containers.engine import Engine
from agent.domain.sessions.deadlines import Deadlines
from agent.domain.sessions.session import Port, Session
from agent.kernel.usage import UsageMeter
from agent.metrics.instruments import Metrics
from agent.settings.model import AgentConfig
from agent.state.record import Records
from tiltyard.contract import MEBI, SessionSpec
from tiltyard.runtime.failpoints import Reach

ForgetFlows = Callable[[Sequence[Port]], Awaitable[None]]
"""Flushes connection tracking of ports that no game uses yet."""


class Sources(Interface):
    """Translates the source addresses of packets from containers between `open` and `close`."""

    async def open(self, session: Session, container: Addressed) -> None:
        """Begin to translate for a container, or change its addresses; ignores empty ones."""
        ...

    async def close(self, holder: str) -> None:
        """Stop translating for the container made for this id; no-op if there is none."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Runtime:
    """Components that all sessions use, apart from `Reservations`."""

    agent_id: str
    settings: AgentConfig
    engine: Engine
    records: Records
    clock: HostClock
    deadlines: Deadlines
    feed: Feed
    metrics: Metrics
    usage: UsageMeter
    init: Path  # The program that is the first process of every container
    forget_flows: ForgetFlows
    sources: Sources
    failpoint: Reach

    async def end_run(self, holder: str) -> None:
        """Release the resources of a run of the container made for this id.

        Its processes have ended, and the engine has not given its address to another container.
        """
        self.usage.forget(holder)
        await self.sources.close(holder)

    def stop_grace(self, spec: SessionSpec) -> float:
        """Seconds from the signal of a stop to SIGKILL."""
        settings = self.settings
        asked = spec.stop_grace
        return min(asked, settings.max_stop_grace) if asked else settings.stop_grace

    def disk_limit(self, spec: SessionSpec) -> int:
        """Bytes that a session may write; 0 for no limit."""
        return spec.disk_bytes or self.settings.session_disk * MEBI

    def pids_limit(self, spec: SessionSpec) -> int:
        """The most processes and threads that a session may have."""
        return spec.pids or self.settings.session_pids
