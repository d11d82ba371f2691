"""Rotation of the authority of a deployment without interrupting its hosts.

Both authorities are trusted while hosts move to the new one (`fleet/renewal.py`); the rotation
ends when the former one is dropped. It survives restarts of the control plane.
"""

from dataclasses import KW_ONLY, dataclass

from controlplane.agent_rpc.dialling import Dialler
from controlplane.domain.access.callers import Caller
from controlplane.domain.errors import ConflictError
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.fleet.renewal import Renewal
from controlplane.pki.authority import Authority
from controlplane.pki.issuer import Issuer
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.hosts.enrolment import finished, rotated
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.failpoints import Reach, no_failpoint
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

ENROL_AGAIN = "its certificate is from an authority that is no longer trusted: enrol it again"
EXPIRED = "its certificate has expired: enrol it again"
UNRESPONSIVE = "it is unresponsive, and moves once it reports"
MOVING = "it is moving"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A host that does not trust the current authority alone yet, and why."""

    host: Host
    why: str


@dataclass(frozen=True, slots=True)
class RotationStatus:
    """The authorities, and the enrolled hosts that have not moved yet."""

    current: Authority
    former: Authority | None
    enrolled: int
    waiting: list[Waiting]


@dataclass(frozen=True, slots=True)
class Rotation:
    """Use cases on the authority, for authorized callers."""

    store: Store
    fleet: Fleet
    _: KW_ONLY
    issuer: Issuer
    dialler: Dialler
    renewal: Renewal
    clock: Clock
    reach: Reach = no_failpoint

    def status(self) -> RotationStatus:
        """Return the progress of the hosts."""
        waiting = [Waiting(host, self._why(host)) for host in self.renewal.unmoved()]
        enrolled = sum(host.state.row.id is not None for host in self.fleet.hosts)
        authorities = self.issuer.authorities
        return RotationStatus(authorities.current, authorities.former, enrolled, waiting)

    async def rotate(self, caller: Caller, *, compromised: bool) -> RotationStatus:
        """Sign with a new authority and move hosts to it. A rotation under way continues.

        A compromised authority is no longer trusted: all connections are closed, and every host
        must enrol again.

        Raises:
            StoreError: The new one cannot be stored, so the former stays in use. Enrolment tokens
                are void all the same if that is compromised.
        """
        await self._rotate(caller, compromised=compromised)
        return self.status()

    async def finish(self, caller: Caller, *, force: bool) -> RotationStatus:
        """Trust the current authority alone. Idempotent.

        Raises:
            ConflictError: Hosts have not moved; with `force` they have to enrol again.
            StoreError: It cannot be stored; nothing has changed.
        """
        await self._finish(caller, force=force)
        return self.status()

    async def _rotate(self, caller: Caller, *, compromised: bool) -> None:
        async with self.issuer.lock:
            authorities = self.issuer.authorities
            if authorities.former is not None and not compromised:
                return
            made = authorities.rotated(self.clock.time())
            made = made.finished() if compromised else made
            fingerprint = made.current.fingerprint
            now = self.clock.time()
            await self.store.run(rotated, fingerprint, caller.actor, now, compromised=compromised)
            await self.issuer.trust(made)
            if compromised:
                self._disconnect(
                    [host for host in self.fleet.hosts if host.state.row.id is not None]
                )
            else:
                self.renewal.redial()
            self.renewal.look_again()
            await self.reach("authority.rotated")
            await self.issuer.show_current()

    async def _finish(self, caller: Caller, *, force: bool) -> None:
        async with self.issuer.lock:
            if self.issuer.authorities.former is None:
                return
            left = self.renewal.unmoved()
            kept = self.issuer.authorities.finished()
            if left and not force:
                raise ConflictError(
                    f"{len(left)} hosts have not moved to the new authority, the first of them"
                    f" {left[0].state.row.name!r}: wait for them, or force it and enrol them again"
                )
            names = [host.name for host in left]
            await self.store.run(
                finished,
                kept.current.fingerprint,
                caller.actor,
                self.clock.time(),
                left=names,
            )
            await self.issuer.trust(kept)
            self.renewal.redial()
            self._disconnect(left)
            await self.reach("authority.finished")
            await self.issuer.show_current()

    def _disconnect(self, hosts: list[Host]) -> None:
        if hosts:
            log.warning("hosts disconnected, they must enrol again", count=len(hosts))
        for host in hosts:
            host.state.client.hang_up(self.dialler.credentials(host.state.row))

    def _why(self, host: Host) -> str:
        trusted = {authority.fingerprint for authority in self.issuer.authorities}
        if host.state.row.authority not in trusted:
            return ENROL_AGAIN
        if (host.state.row.certificate_expire or 0.0) <= self.clock.time():
            return EXPIRED
        if self.fleet.report_age(host) > self.fleet.unreachable_after:
            return UNRESPONSIVE
        return self.renewal.cause(host) or MOVING
