"""Use cases of operators on agents."""

from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum

from controlplane.domain.access.callers import Caller
from controlplane.domain.applications.pulls import Pull
from controlplane.domain.errors import ConflictError, NotFoundError
from controlplane.domain.hosts.agents import Agent
from controlplane.domain.hosts.contract import Drain, HostReport
from controlplane.domain.placement.start_failures import StartFailure
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.fleet.standby_pools import KeptOnHost, StandbyPools
from controlplane.operators.fleet import Declared, check_undeclared
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.hosts.fleet import (
    agents,
    order_drain,
    remove_agent,
)
from tiltyard.contract import PreparedShape
from tiltyard.runtime.clock import Clock

ORDER_WAIT = 2.0
"""Seconds for which a call waits until the host has its drain order; it is sent anyway."""


class AgentState(StrEnum):
    """The state of an agent: ready, or why its host gets no sessions.

    A failing one gets sessions that no other host has room for.
    """

    CONNECTING = "connecting"
    READY = "ready"
    UNRESPONSIVE = "unresponsive"
    DRAINING = "draining"
    ENGINE_UNAVAILABLE = "engine_unavailable"
    DISK_FULL = "disk_full"
    UNREACHABLE = "unreachable"
    LOST = "lost"
    NEWER = "newer"
    FAILING = "failing"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class ImagesOfAccount:
    """The unpacked bytes of an account's images on a host."""

    account: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ShownAgent:
    """An agent as the control plane knows it now.

    `host` is None before it has reported. `last_report` is exact to a minute if that
    was before this control plane started. `drain` is the newest drain order,
    `drain_pending` until the host has reported it.
    """

    row: Agent
    state: AgentState
    last_report: float | None
    drain: Drain
    draining: bool
    declared: bool = False
    host: HostReport | None = None
    live_sessions: int = 0
    drain_pending: bool = False
    pulls: list[Pull] = field(default_factory=list)
    image_accounts: list[ImagesOfAccount] = field(default_factory=list)
    """The accounts with images on its host, the one with the most bytes first."""
    prepared: list[PreparedShape] = field(default_factory=list)
    """Prepared containers by shape, failing ones first, then those with the most containers."""
    warm_pools: list[KeptOnHost] = field(default_factory=list)
    """The pools that have, or should have, standbys on its host."""
    latency: float | None = None
    unresponsive_addresses: list[str] = field(default_factory=list)
    """Latency addresses that do not reply."""
    unclaimed: list[str] = field(default_factory=list)
    """Internal ids of live sessions without a valid ticket or a known account, sorted."""
    start_failures: list[StartFailure] = field(default_factory=list)
    """Failed starts without a later success, by application, newest first."""
    lost: float | None = None


@dataclass(frozen=True, slots=True)
class Agents:
    """Use cases on agents, for authorized callers."""

    store: Store
    fleet: Fleet
    _: KW_ONLY
    standbys: StandbyPools
    declared: Declared
    clock: Clock

    async def all_agents(self) -> list[ShownAgent]:
        """Return all agents by name, including revoked ones."""
        gone = await self.store.read(agents, revoked=True)
        shown = {row.name: _revoked(row) for row in gone}
        shown |= {host.name: self._shown(host) for host in self.fleet.hosts}
        return [shown[name] for name in sorted(shown)]

    async def agent_named(self, name: str) -> ShownAgent:
        """Return one agent.

        Raises:
            NotFoundError: There is no agent of that name.
        """
        host = self.fleet.host(name)
        if host is not None:
            return self._shown(host)
        for row in await self.store.read(agents, revoked=True):
            if row.name == name:
                return _revoked(row)
        raise NotFoundError("agent", name)

    async def set_drain(
        self, caller: Caller, name: str, *, draining: bool, seconds: int | None = None
    ) -> ShownAgent:
        """Drain a host, and stop its remaining sessions after `seconds`; or end its drain.

        Placement applies it at once; the order is sent until the host answers.

        Raises:
            NotFoundError: There is no agent of that name.
            ConflictError: It was revoked.
        """
        host = self.fleet.host(name)
        fleet = self.fleet
        now = self.clock.time()
        deadline = None if seconds is None else now + seconds
        order = Drain(0 if host is None else host.state.drain.revision, draining, deadline)
        await self.store.run(order_drain, name, order, actor=caller.actor, now=now)
        await fleet.caught_up()
        host = fleet.host(name)
        if host is not None and fleet.report_age(host) <= fleet.unresponsive_after:
            await host.orders.drain_acknowledged(ORDER_WAIT)
        return await self.agent_named(name)

    async def remove_agent(self, caller: Caller, name: str) -> None:
        """Remove an agent: it gets no more sessions, and is not dialled.

        Its ended sessions stay listed; their logs and files are no longer reachable.

        Raises:
            NotFoundError: There is no agent of that name.
            ConflictError: The settings file declares it, or it has live sessions, unanswered
                attempts, or standbys.
        """
        check_undeclared("agent", name, self.declared)
        if self.fleet.is_responsive(name) and self.fleet.standbys.pools_on(name):
            raise ConflictError(f"the agent {name!r} keeps standbys: drain its host first")
        await self.store.run_in_portions(remove_agent, name, caller.actor, self.clock.time())
        await self.fleet.caught_up()

    def _shown(self, host: Host) -> ShownAgent:
        age = self.fleet.report_age(host)
        last_report = host.state.row.last_report
        if host.state.reported_at is not None:
            last_report = self.clock.time() - age
        return ShownAgent(
            row=host.state.row,
            declared=host.name in self.declared["agent"],
            state=state_of(self.fleet, host),
            host=host.state.report,
            live_sessions=host.state.live_sessions,
            last_report=last_report,
            drain=host.state.drain,
            draining=host.state.draining,
            drain_pending=host.state.drain_pending,
            lost=host.state.lost,
            pulls=host.images.pulls,
            image_accounts=[ImagesOfAccount(*each) for each in host.images.room.held],
            prepared=_prepared(host),
            warm_pools=self.standbys.kept_on(host),
            latency=host.state.latency.seconds,
            unresponsive_addresses=list(host.state.latency.unresponsive),
            unclaimed=sorted(host.state.unclaimed),
            start_failures=host.state.failures.all_failures(self.fleet.now()),
        )


def _prepared(host: Host) -> list[PreparedShape]:
    shapes = {} if host.state.report is None else host.state.report.prepared
    return sorted(shapes.values(), key=lambda shape: (not shape.error, -shape.kept, shape.image))


def _revoked(row: Agent) -> ShownAgent:
    return ShownAgent(
        row, AgentState.REVOKED, row.last_report, drain=row.drain, draining=row.drain.draining
    )


def state_of(fleet: Fleet, host: Host) -> AgentState:
    """Return the state of an agent that is followed."""
    report = host.state.report
    conditions = (
        (AgentState.NEWER, host.state.is_newer),
        (AgentState.LOST, host.state.lost is not None),
        (AgentState.CONNECTING, not host.state.reconciled or report is None),
        (AgentState.UNREACHABLE, not fleet.is_responsive(host.name)),
        (AgentState.UNRESPONSIVE, fleet.report_age(host) > fleet.unresponsive_after),
        (AgentState.DRAINING, host.state.draining),
        (AgentState.ENGINE_UNAVAILABLE, report is not None and not report.engine_available),
        (AgentState.DISK_FULL, report is not None and report.disk_full),
        (AgentState.FAILING, host.state.failures.is_failing(fleet.now())),
    )
    return next((state for state, holds in conditions if holds), AgentState.READY)
