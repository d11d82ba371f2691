"""The certificate of one host: renewed by the authority that it has, or moved to the current one.

A host moves in two steps, each of which can be done again. It installs a certificate of the
current authority and trusts both, at once; then, called with one of the current authority on a new
connection, it drops the other. So it can be called at every moment, whatever answer was lost.
"""

from dataclasses import replace

from controlplane.agent_rpc.dialling import Dialler
from controlplane.domain.errors import AgentRefusedError
from controlplane.fleet.host.state import HostState
from controlplane.pki.authority import Issued
from controlplane.pki.issuer import Issuer
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.enrolment import renewed, trusts_one_authority
from tiltyard.contract import ErrorReason
from tiltyard.runtime.clock import Clock, to_ms
from tiltyard.runtime.failpoints import Reach, no_failpoint
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

OLD_AGENT = "its agent is of an older version: upgrade it, or enrol the host again"


class HostCertificates:
    """Orders to hosts about their certificates.

    Each raises AgentRefusedError, AgentSilentError, ValueError or StoreError when it was not
    carried out, or may not have been; it can be given again.
    """

    def __init__(
        self,
        store: Store,
        *,
        issuer: Issuer,
        dialler: Dialler,
        clock: Clock,
        reach: Reach = no_failpoint,
    ) -> None:
        self._store = store
        self._issuer = issuer
        self._dialler = dialler
        self._clock = clock
        self._reach = reach

    def is_moved(self, host: HostState) -> bool:
        """Return whether a host trusts the current authority alone, or is not enrolled."""
        row = host.row
        current = self._issuer.authority.fingerprint
        return row.id is None or (row.authority == current and not row.trusts_former)

    async def renew(self, host: HostState) -> None:
        """Give a host another certificate of the authority that it has."""
        asked, row = await host.client.ask_for_request(), host.row
        assert row.id is not None, "only an enrolled agent's certificate expires"
        issued = self._issuer.sign_agent(asked.request, row.id, row.authority)
        await host.client.install(issued.certificate)
        await self._note(host, issued, trusts_former=row.trusts_former)
        log.info("certificate renewed", agent=row.name)

    async def move(self, host: HostState) -> None:
        """Bring a host to the current authority."""
        if host.row.authority != self._issuer.authority.fingerprint:
            await self._give(host)
        if host.row.trusts_former:
            await self._drop_former(host)
        log.info("moved to the current authority", agent=host.name)

    async def _give(self, host: HostState) -> None:
        asked, row = await host.client.ask_for_request(), host.row
        if not asked.takes_authorities:
            raise AgentRefusedError(ErrorReason.UNIMPLEMENTED, OLD_AGENT)
        assert row.id is not None, "only an enrolled agent belongs to an authority"
        authorities = self._issuer.authorities
        issued = self._issuer.sign_agent(asked.request, row.id)
        await host.client.install(issued.certificate, authorities.trusted)
        await self._reach("authority.installed")
        await self._note(host, issued, trusts_former=int(authorities.former is not None))
        host.client.redial(self._dialler.credentials(host.row))
        await self._reach("authority.moved")

    async def _drop_former(self, host: HostState) -> None:
        authority, row = self._issuer.authority, host.row
        await host.client.install(authorities=authority.certificate)
        await self._reach("authority.dropped")
        if row.authority == authority.fingerprint and row.id is not None:
            await self._store.run(trusts_one_authority, row.id)
            host.row = replace(host.row, trusts_former=0)

    async def _note(self, host: HostState, issued: Issued, *, trusts_former: int) -> None:
        """Write what a host has by now; what could not be written is done again."""
        row = replace(
            host.row,
            certificate_expire_ms=to_ms(issued.expire),
            authority=issued.authority,
            trusts_former=trusts_former,
        )
        await self._store.run(renewed, row, issued.serial, self._clock.time())
        host.row = row
