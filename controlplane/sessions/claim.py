"""Standbys for starts: reserved in memory before any commit, and released."""

from dataclasses import dataclass
from functools import partial

from controlplane.domain.contract import Claim, HostSession
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.fleet.standby_pools import StandbyPools
from controlplane.sessions.attempt import NothingStarted, Outcome
from controlplane.sessions.start_request import Plan, StartRequest, ignored_of_a_claim
from controlplane.storage.engine.store import Actor
from controlplane.storage.tables.applications import Application
from controlplane.storage.tables.claims import NewClaim
from controlplane.storage.tables.session_rows import Attempt
from controlplane.storage.tables.warm_pools import WarmPool
from tiltyard.contract import ErrorReason, Identity


@dataclass(slots=True, eq=False)
class HeldStandby:
    """A standby reserved for one start until it is released."""

    host: Host
    standby: HostSession  # As reported when taken
    pool: WarmPool


class Claims:
    """Reserves standbys for starts."""

    def __init__(self, fleet: Fleet, pools: StandbyPools) -> None:
        self._fleet = fleet
        self._pools = pools

    def may_serve(self, application: Application, request: StartRequest) -> bool:
        """Return whether a standby may serve a start; host ports need a cold one."""
        pool = self._pools.pool_at(application.account, application.name, request.location)
        if pool is None or request.pins:
            return False
        agents = self._fleet.standbys.ready_agents(pool.id)
        return any(self._pools.can_claim(pool.id, agent) for agent in agents)

    def take(self, plan: Plan) -> HeldStandby | None:
        """Reserve a ready standby for a start; None if the start must continue cold.

        The start owns the standby until it is released.
        """
        application = plan.application
        request = plan.request
        pool = self._pools.pool_at(application.account, application.name, request.location)
        if pool is None or request.pins:
            return None
        taken = self._fleet.standbys.take(pool.id, partial(self._pools.can_claim, pool.id))
        host = None if taken is None else self._fleet.host(taken[0])
        if taken is None or host is None:
            return None
        host.claiming.add(taken[1].internal_id)
        return HeldStandby(host, taken[1], pool)

    def set_aside(self, held: HeldStandby, outcome: Outcome) -> None:
        """Mark the host as in doubt, unless it refused this standby alone."""
        if not _is_its_own(outcome):
            held.host.in_doubt = True

    def keep(self, held: HeldStandby) -> None:
        """End a reservation without offering the standby again."""
        held.host.claiming.discard(held.standby.internal_id)

    def release(self, held: HeldStandby, refused: NothingStarted | None = None) -> None:
        """Offer a standby that was not claimed to other starts.

        A refused one is ready after its host's next report, which may have arrived already.
        """
        self.keep(held)
        host = held.host
        standby = held.standby
        standbys = self._fleet.standbys
        seen = host.session(standby.internal_id)
        standbys.drop(host.name, standby.internal_id)
        if seen is None or self._fleet.host(host.name) is not host:
            return
        if not _is_its_own(refused) or seen is not standby:
            standbys.note(host.name, seen)


def _is_its_own(outcome: Outcome | None) -> bool:
    """Return whether a host refused this standby, not any claim."""
    if not isinstance(outcome, NothingStarted):
        return False
    return outcome.error.agent_reason is ErrorReason.STANDBY_NOT_CLAIMABLE


def claim_of(plan: Plan, held: HeldStandby, actor: Actor) -> NewClaim:
    """Make the claim of a standby; without a requested id the session gets the standby's."""
    application = plan.application
    request = plan.request
    standby = held.standby
    address = held.host.report.public_address if held.host.report is not None else ""
    identity = Identity(
        account=application.account,
        session_id=request.id or standby.internal_id,
        application=application.name,
        tag=standby.identity.tag,
        location=request.location,
        labels=held.pool.labels,
        external_id=request.external_id,
    )
    claim = Claim(
        standby.internal_id,
        identity,
        request.ttl,
        ignored_of_a_claim(request),
        reservation=application.reservation,
    )
    attempt = Attempt(standby.internal_id, held.host.name, address)
    # The host sets the same variables, with the session's id for the standby's.
    env = {
        name: identity.session_id if value == standby.identity.session_id else value
        for name, value in standby.injected_env.items()
    }
    return NewClaim(attempt, standby.ports, env, claim, actor)
