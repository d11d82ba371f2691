"""Standbys for starts: reserved in memory before any commit, and released."""

from dataclasses import dataclass
from functools import partial

from controlplane.domain.applications.applications import Application
from controlplane.domain.applications.warm_pools import WarmPool
from controlplane.domain.hosts.contract import Claim, HostSession
from controlplane.domain.sessions.claims import ClaimedStandby
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.standby_pools import StandbyPools
from controlplane.sessions.attempt import is_refused_alone
from controlplane.sessions.hold import Hold, attempt_on
from controlplane.sessions.start_request import Plan, StartRequest, ignored_of_a_claim
from tiltyard.contract import Identity


@dataclass(slots=True, eq=False)
class HeldStandby(Hold):
    """A standby reserved for one start until it is released."""

    standby: HostSession  # As reported when taken
    pool: WarmPool
    fleet: Fleet

    def claimed_by(self, claim: Claim) -> ClaimedStandby:
        """Return what the row of the session has of the standby.

        The host sets the same variables, with the session's id for the standby's.
        """
        standby = self.standby
        own_id = standby.identity.session_id
        session_id = claim.identity.session_id
        env = {
            name: session_id if value == own_id else value
            for name, value in standby.injected_env.items()
        }
        return ClaimedStandby(self.attempt, standby.ports, env, claim.request)

    def end(self) -> None:
        """End the reservation without offering the standby again."""
        self.host.state.end_claim(self.attempt.internal_id)

    def release(self) -> None:
        """End the reservation; offer the standby to other starts if it is still one.

        A refused one is ready after its host's next report, which may have arrived already.
        """
        self.end()
        if self.is_unanswered:
            return
        host = self.host
        standbys = self.fleet.standbys
        seen = host.state.session(self.attempt.internal_id)
        standbys.drop(host.name, self.attempt.internal_id)
        if seen is None or self.fleet.host(host.name) is not host:
            return
        if not is_refused_alone(self.outcome) or seen is not self.standby:
            standbys.note(host.name, seen)


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

    def reserve_standby(self, plan: Plan) -> HeldStandby | None:
        """Reserve a ready standby for a start; None if the start must continue cold.

        The start owns the standby until it is released.
        """
        application = plan.application
        request = plan.request
        pool = self._pools.pool_at(application.account, application.name, request.location)
        if pool is None or request.pins:
            return None
        taken = self._fleet.standbys.take(pool.id, partial(self._pools.can_claim, pool.id))
        if taken is None:
            return None
        agent, standby = taken
        host = self._fleet.host(agent)
        if host is None:
            return None
        host.state.hold_claim(standby.internal_id)
        attempt = attempt_on(host, standby.internal_id)
        return HeldStandby(host, attempt, standby, pool, self._fleet)


def claim_of(plan: Plan, held: HeldStandby) -> Claim:
    """Make the claim of a standby; without a requested id the session gets the standby's."""
    application = plan.application
    request = plan.request
    standby = held.standby
    identity = Identity(
        account=application.account,
        session_id=request.id or standby.internal_id,
        application=application.name,
        tag=standby.identity.tag,
        location=request.location,
        labels=held.pool.labels,
        external_id=request.external_id,
        traceparent=request.traceparent,
    )
    return Claim(
        standby.internal_id,
        identity,
        request.ttl,
        ignored_of_a_claim(request),
        reservation=application.reservation,
    )
