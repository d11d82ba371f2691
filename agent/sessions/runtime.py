"""Settings and components shared by all sessions of a host."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from agent.changes.feed import Feed
from agent.domain.clock import HostClock
from agent.domain.deadlines import Deadlines
from agent.domain.engine import Engine
from agent.domain.session import Port
from agent.kernel.usage import UsageMeter
from agent.metrics.instruments import Metrics
from agent.state.record import Records
from tiltyard.runtime.failpoints import Reach

ForgetFlows = Callable[[Sequence[Port]], Awaitable[None]]
"""Flushes connection tracking of ports; called after the engine has published them."""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """Host settings of sessions; `stop_grace` in seconds, `session_disk_bytes` 0 for no limit."""

    agent_id: str
    public_address: str
    bind_address: str
    env_prefixes: tuple[str, ...]
    stop_grace: float
    session_disk_bytes: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Runtime:
    """Components that all sessions use, apart from `Reservations`."""

    settings: HostSettings
    engine: Engine
    records: Records
    clock: HostClock
    deadlines: Deadlines
    feed: Feed
    metrics: Metrics
    usage: UsageMeter
    forget_flows: ForgetFlows
    failpoint: Reach
