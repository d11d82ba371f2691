"""Agents as operators see and remove them."""

from dataclasses import dataclass, field
from enum import StrEnum

from controlplane.clock import Clock
from controlplane.errors import NotFoundError
from controlplane.fleet.contract import Host
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.fleet_admin import check_removed, check_undeclared
from controlplane.fleet.host_link import HostLink
from controlplane.fleet.preload import Preloader
from controlplane.fleet.pulls import Pull
from controlplane.storage.account_store import Caller
from controlplane.storage.enrolment_store import EnrolmentStore, RevokedAgent
from controlplane.storage.fleet_admin_store import FleetAdminStore, Removal, Removed
from controlplane.storage.fleet_store import AgentRow


class AgentState(StrEnum):
    """How the control plane stands with an agent."""

    CONNECTING = "connecting"
    READY = "ready"
    UNREACHABLE = "unreachable"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class ShownAgent:
    """An agent as the control plane knows it now.

    `host` is None before it has reported; `heard_ms` is the wall time at which it was last heard,
    None when it was not since this control plane started.
    """

    row: AgentRow
    declared: bool
    state: AgentState
    host: Host | None
    live_sessions: int
    heard_ms: int | None
    pulls: list[Pull]
    unclaimed: list[str] = field(default_factory=list)
    """Internal ids of what lives there without a valid ticket, in order."""
    revoked_ms: int | None = None


class Agents:
    """Use cases on agents; whoever calls them has checked that one may."""

    def __init__(
        self,
        store: FleetAdminStore,
        enrolments: EnrolmentStore,
        fleet: Fleet,
        preloader: Preloader,
        *,
        declared: frozenset[str],
        clock: Clock,
    ) -> None:
        self._store = store
        self._enrolments = enrolments
        self._fleet = fleet
        self._preloader = preloader
        self._declared = declared
        self._clock = clock

    async def all(self) -> list[ShownAgent]:
        """Show all agents by name, also those that were revoked."""
        revoked = await self._enrolments.revoked()
        shown = {agent.row.name: self._revoked(agent) for agent in revoked}
        shown |= {link.row.name: self._shown(link) for link in self._fleet.links}
        return [shown[name] for name in sorted(shown)]

    async def get(self, name: str) -> ShownAgent:
        """Show one agent.

        Raises:
            NotFoundError: There is none of that name.
        """
        link = self._fleet.link(name)
        if link is not None:
            return self._shown(link)
        for agent in await self._enrolments.revoked():
            if agent.row.name == name:
                return self._revoked(agent)
        raise NotFoundError("agent", name)

    async def remove(self, caller: Caller, name: str) -> None:
        """Remove an agent: no session is placed on it from now on, and nobody dials it.

        Its ended sessions stay listed; their logs and files are with it, out of reach.

        Raises:
            NotFoundError: There is none of that name.
            ConflictError: The settings file declares it, or it has live sessions, or starts whose
                end is unknown.
        """
        check_undeclared("agent", name, self._declared)

        def forget(removal: Removal) -> None:
            if isinstance(removal, Removed):
                self._fleet.remove(name)

        now_ms = self._clock.now_ms()
        removal = await self._store.remove_agent(name, caller.actor, now_ms, forget)
        check_removed("agent", name, removal)

    def _shown(self, link: HostLink) -> ShownAgent:
        silent = link.silent_seconds(self._clock.monotonic())
        heard_ms = None
        if link.heard_at is not None:
            heard_ms = self._clock.now_ms() - int(silent * 1000)
        return ShownAgent(
            row=link.row,
            declared=link.row.name in self._declared,
            state=self._state(link),
            host=link.host,
            live_sessions=link.live_sessions,
            heard_ms=heard_ms,
            pulls=self._preloader.pulls(link),
            unclaimed=sorted(link.unclaimed),
        )

    def _revoked(self, agent: RevokedAgent) -> ShownAgent:
        return ShownAgent(
            row=agent.row,
            declared=False,
            state=AgentState.REVOKED,
            host=None,
            live_sessions=0,
            heard_ms=None,
            pulls=[],
            revoked_ms=agent.revoked_ms,
        )

    def _state(self, link: HostLink) -> AgentState:
        if not link.reconciled:
            return AgentState.CONNECTING
        heard = self._fleet.is_heard(link.row.name)
        return AgentState.READY if heard else AgentState.UNREACHABLE
