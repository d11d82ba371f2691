"""Renewal of certificates after two thirds of their lifetime, and moves to the current authority.

An agent makes a new key for each certificate; open streams continue on the old one. A host of
another authority is moved in two idempotent steps: it installs a certificate of the current
authority and trusts both; then, called over a new connection with a certificate of the current
authority, it drops the other. It stays reachable whichever response is lost.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field, replace

from controlplane.agent_rpc.dialling import Dialler
from controlplane.domain.access.enrolment import Issued
from controlplane.domain.errors import AgentRefusedError, AgentUnavailableError, StoreError
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.metrics.agents import FleetMetrics
from controlplane.pki.issuer import Issuer
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.hosts.enrolment import renewed, trusts_one_authority
from tiltyard.contract import ErrorReason
from tiltyard.runtime.clock import Clock, is_trusted
from tiltyard.runtime.failpoints import Reach, no_failpoint
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import first_completed

log = get_logger(__name__)

INTERVAL = 600.0  # Seconds between two checks; a failed renewal can be retried for ten days
TICK = 2.0  # Seconds between two checks for hosts to move, and for a clock to trust
MOVE_AGAIN = 5.0  # Seconds after which a failed move is retried

CALL_OTHERWISE = 5.0
"""Seconds after which an unresponsive host is called with the other certificate."""

AT_ONCE = 16  # Maximum number of concurrent renewals

OLD_AGENT = "its agent is of an older version: upgrade it, or enrol the host again"

_FAILURES = (AgentRefusedError, AgentUnavailableError, ValueError, StoreError)


@dataclass(slots=True)
class Renewal:
    """Renews the certificates of a fleet, and moves it to the current authority.

    Methods on one host can be retried after AgentRefusedError, AgentUnavailableError, ValueError
    and StoreError; they may have been carried out.
    """

    store: Store
    fleet: Fleet
    _: KW_ONLY
    issuer: Issuer
    dialler: Dialler
    clock: Clock
    metrics: FleetMetrics
    reach: Reach = no_failpoint
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _causes: dict[str, str] = field(default_factory=dict)  # Why hosts could not be moved, by name
    _retry_at: dict[str, float] = field(default_factory=dict)
    """Time of the next try by name, monotonic."""
    _called_as_moved: set[str] = field(default_factory=set)
    """Unresponsive hosts that are called with the current certificate."""
    _swapped_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._swapped_at = self.clock.monotonic()

    async def run(self) -> None:
        """Renew certificates and move hosts periodically, until cancelled.

        After a boot it waits until the clock can be trusted: what a wrong clock issues is invalid
        once the clock is right. The control plane's own certificates are then issued again.
        """
        renewed_at = float("-inf")
        while True:
            now = self.clock.monotonic()
            if now - renewed_at >= INTERVAL and is_trusted(self.clock):
                await self.renew()
                renewed_at = now
            await self._wait(TICK)
            await self.move()

    async def renew(self) -> None:
        """Renew all certificates that are due; unreachable agents are retried later."""
        if await self._renew_own():
            self.redial()
        if self.issuer.authority.is_ending(self.clock.time()):
            log.warning("the authority expires within a year: `authority rotate` replaces it")
        due = [host for host in self.fleet.hosts if self._is_due(host)]
        await _for_each(due, self._renew, "renew the certificate of")

    def unmoved(self) -> list[Host]:
        """Return the enrolled hosts that do not trust the current authority alone."""
        return [host for host in self.fleet.hosts if not self.is_moved(host)]

    def cause(self, host: Host) -> str:
        """Return why a host could not be moved; "" if unknown."""
        return self._causes.get(host.name, "")

    async def move(self) -> None:
        """Move the responsive hosts that have not moved yet."""
        unmoved = self.unmoved()
        names = {host.name for host in unmoved}
        self._causes = {name: cause for name, cause in self._causes.items() if name in names}
        self._called_as_moved &= names
        if self.clock.monotonic() - self._swapped_at >= CALL_OTHERWISE:
            self._swapped_at = self.clock.monotonic()
            self._swap_certificates([host for host in unmoved if not self._is_responsive(host)])
        if not is_trusted(self.clock):
            return
        now = self.clock.monotonic()
        retry_at = self._retry_at
        due = [host for host in unmoved if now >= retry_at.get(host.name, 0.0)]
        await _for_each([host for host in due if self._is_responsive(host)], self._move, "move")

    def look_again(self) -> None:
        """Move hosts at once, such as after a rotation has begun."""
        self._retry_at.clear()
        self._woken.set()

    def redial(self) -> None:
        """Use the current certificates for new calls to enrolled agents."""
        for host in self.fleet.hosts:
            if host.state.row.id is not None:
                self._redial(host)

    def _redial(self, host: Host) -> None:
        row = host.state.row
        if row.name in self._called_as_moved:
            row = replace(row, authority=self.issuer.authority.fingerprint)
        host.state.client.redial(self.dialler.credentials(row))

    async def _wait(self, seconds: float) -> None:
        await first_completed(self._woken.wait(), self.clock.sleep(seconds), "renewal-look")
        self._woken.clear()

    async def _renew_own(self) -> bool:
        try:
            is_new = await self.issuer.renew_own()
        except (OSError, ValueError) as error:  # a full disk, or a clock beyond its end
            self.metrics.renewals.labels("controlplane", "failed").inc()
            log.error(  # noqa: TRY400 - the text says it all
                "cannot renew the control plane's own certificates", error=str(error)
            )
            return False
        if is_new:
            self.metrics.renewals.labels("controlplane", "renewed").inc()
        return is_new

    def _is_due(self, host: Host) -> bool:
        row = host.state.row
        authority = self.issuer.authorities.of(row.authority)
        return row.certificate_expire is not None and authority.is_due(
            row.certificate_expire, self.clock.time()
        )

    async def _renew(self, host: Host) -> None:
        try:
            await self.renew_host(host)
            self.metrics.renewals.labels("agent", "renewed").inc()
        except _FAILURES as error:
            self.metrics.renewals.labels("agent", "failed").inc()
            name = host.name
            expire = host.state.row.certificate_expire or 0.0
            if expire <= self.clock.time():
                log.error(  # noqa: TRY400 - the text says it all
                    "its certificate has expired: enrol it again", agent=name
                )
            else:
                log.warning("cannot renew its certificate", agent=name, error=str(error))

    def _swap_certificates(self, unresponsive: list[Host]) -> None:
        """Swap the current and the former certificate for calls to unresponsive hosts.

        A database restored from the middle of a rotation does not say which hosts have moved. A
        host with a call under way may be about to answer, and keeps its certificate.
        """
        if self.issuer.authorities.former is None:
            return
        for host in unresponsive:
            if not host.state.client.is_calling:
                self._called_as_moved ^= {host.name}
                self._redial(host)

    def _is_responsive(self, host: Host) -> bool:
        return self.fleet.report_age(host) <= self.fleet.unreachable_after

    async def _move(self, host: Host) -> None:
        name = host.name
        try:
            await self.move_host(host)
            self.metrics.renewals.labels("agent", "renewed").inc()
        except _FAILURES as error:
            self.metrics.renewals.labels("agent", "failed").inc()
            cause = error.text if isinstance(error, AgentRefusedError) else str(error)
            if self.cause(host) != cause:
                log.warning("cannot move to the current authority", agent=name, error=cause)
            self._causes[name] = cause
            self._retry_at[name] = self.clock.monotonic() + MOVE_AGAIN

    def is_moved(self, host: Host) -> bool:
        """Return whether a host trusts only the current authority, or is not enrolled."""
        row = host.state.row
        current = self.issuer.authority.fingerprint
        return row.id is None or (row.authority == current and not row.trusts_former)

    async def renew_host(self, host: Host) -> None:
        """Renew the certificate of a host, from the same authority."""
        asked = await host.state.client.ask_for_request()
        row = host.state.row
        assert row.id is not None, "only an enrolled agent's certificate expires"
        issued = self.issuer.sign_agent(asked.request, row.id, row.authority)
        await host.state.client.install(issued.certificate)
        await self._note(host, issued, trusts_former=row.trusts_former)
        log.info("certificate renewed", agent=row.name)

    async def move_host(self, host: Host) -> None:
        """Move a host to the current authority."""
        if host.state.row.authority != self.issuer.authority.fingerprint:
            await self._install_current(host)
        if host.state.row.trusts_former:
            await self._drop_former(host)
        log.info("moved to the current authority", agent=host.name)

    async def _install_current(self, host: Host) -> None:
        asked = await host.state.client.ask_for_request()
        row = host.state.row
        if not asked.takes_authorities:
            raise AgentRefusedError(ErrorReason.UNIMPLEMENTED, OLD_AGENT)
        assert row.id is not None, "only an enrolled agent belongs to an authority"
        authorities = self.issuer.authorities
        issued = self.issuer.sign_agent(asked.request, row.id)
        await host.state.client.install(issued.certificate, authorities.trusted)
        await self.reach("authority.installed")
        await self._note(host, issued, trusts_former=int(authorities.former is not None))
        host.state.client.redial(self.dialler.credentials(host.state.row))
        await self.reach("authority.moved")

    async def _drop_former(self, host: Host) -> None:
        authority = self.issuer.authority
        row = host.state.row
        await host.state.client.install(authorities=authority.certificate)
        await self.reach("authority.dropped")
        if row.authority == authority.fingerprint and row.id is not None:
            await self.store.run(trusts_one_authority, row.id)
            host.state.note_row(replace(host.state.row, trusts_former=0))

    async def _note(self, host: Host, issued: Issued, *, trusts_former: int) -> None:
        row = replace(
            host.state.row,
            certificate_expire=issued.expire,
            authority=issued.authority,
            trusts_former=trusts_former,
        )
        await self.store.run(renewed, row, issued.serial, self.clock.time())
        host.state.note_row(row)


async def _for_each(
    hosts: list[Host], work: Callable[[Host], Awaitable[None]], doing: str
) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def bounded(host: Host) -> None:
        async with slots:
            try:
                await work(host)
            except Exception:  # what one host answers must not keep the others from being called
                log.exception("internal error", agent=host.name)

    async with asyncio.TaskGroup() as group:
        for host in hosts:
            group.create_task(bounded(host), name=f"{doing} {host.name}")
