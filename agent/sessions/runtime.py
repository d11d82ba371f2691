"""What the sessions of a host run on."""

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
"""Flushes connection tracking of these ports; called whenever the engine has published them."""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """What a host passes to its sessions and grants them; `stop_grace` in seconds.

    `session_disk_bytes` is what a session may write whose spec does not say, 0 for no limit.
    """

    agent_id: str
    public_address: str
    bind_address: str
    env_prefixes: tuple[str, ...]
    stop_grace: float
    session_disk_bytes: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Runtime:
    """The parts of a host that all sessions use; what each of them holds is in `Reservations`."""

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
