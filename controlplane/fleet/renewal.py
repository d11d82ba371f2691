"""Certificates are renewed when two thirds of their life are over: ours, and those of agents.

An agent makes a fresh key for each, so that none lives longer than its certificate. Streams that
are open go on; the next connection has the new one. Hosts whose certificate is of another
authority than the current one are moved to it as soon as they are heard.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from controlplane.agent_rpc.dialling import Dialler
from controlplane.domain.errors import AgentRefusedError, AgentSilentError, StoreError
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.certificates import HostCertificates
from controlplane.fleet.host.host import Host
from controlplane.metrics.agents import FleetMetrics
from controlplane.pki.issuer import Issuer
from tiltyard.runtime.clock import Clock, to_ms
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import first_completed

log = get_logger(__name__)

INTERVAL = 600.0
"""Seconds between two looks; who could not be renewed has ten days of them."""

MOVE_INTERVAL = 2.0
"""Seconds between two looks for hosts that are to move to the current authority."""

MOVE_AGAIN = 5.0
"""Seconds until a host is asked again that could not be moved."""

REFUSED_AGAIN = 60.0
"""The same for one that refused, unless its agent was restarted."""

CALL_OTHERWISE = 5.0
"""Seconds for which a silent host is called with one certificate before another is tried."""

AT_ONCE = 16
"""Agents that are renewed at the same time."""

_FAILURES = (AgentRefusedError, AgentSilentError, ValueError, StoreError)


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a host could not be moved, by which incarnation of its agent, and when to ask again.

    That is monotonic time.
    """

    cause: str
    incarnation: str
    again_at: float


class Renewal:
    """Looks after the certificates of a fleet."""

    def __init__(
        self,
        certificates: HostCertificates,
        fleet: Fleet,
        issuer: Issuer,
        dialler: Dialler,
        clock: Clock,
        *,
        metrics: FleetMetrics | None = None,
    ) -> None:
        self._certificates = certificates
        self._fleet = fleet
        self._issuer = issuer
        self._dialler = dialler
        self._clock = clock
        self._metrics = metrics or FleetMetrics()
        self._woken = asyncio.Event()
        self._failures: dict[str, _Failure] = {}
        self._as_current: set[str] = set()
        """Silent hosts that are called as if they had moved."""
        self._called_otherwise_at = clock.monotonic()

    async def run(self) -> None:
        """Renew what is due and move who is to move, now and then, until cancelled."""
        while True:
            await self.renew()
            looked_at = self._clock.monotonic()
            while (left := looked_at + INTERVAL - self._clock.monotonic()) > 0:
                await self._wait(min(left, MOVE_INTERVAL) if self.unmoved() else left)
                await self.move()

    async def renew(self) -> None:
        """Renew what is due now; an agent that cannot be reached is asked another time."""
        if await self._renew_own():
            self.redial()
        self._warn_of_end()
        due = [host for host in self._fleet.hosts if self._is_due(host)]
        await _in_turn(due, self._renew, "renew the certificate of")

    def unmoved(self) -> list[Host]:
        """Give the enrolled hosts that are not with the current authority alone."""
        return [host for host in self._fleet.hosts if not self._certificates.is_moved(host)]

    def cause(self, host: Host) -> str:
        """Say why a host could not be moved last; "" when that is not known."""
        failure = self._failures.get(host.name)
        return failure.cause if failure is not None else ""

    async def move(self) -> None:
        """Move the hosts that are to move and are heard."""
        unmoved = self.unmoved()
        names = {host.name for host in unmoved}
        self._failures = {n: found for n, found in self._failures.items() if n in names}
        self._as_current &= names
        if self._clock.monotonic() - self._called_otherwise_at >= CALL_OTHERWISE:
            self._called_otherwise_at = self._clock.monotonic()
            self._call_otherwise([host for host in unmoved if not self._is_heard(host)])
        await _in_turn([host for host in unmoved if self._may_move(host)], self._move, "move")

    def look_again(self) -> None:
        """Have a look taken at once, as when a rotation has begun."""
        self._failures.clear()
        self._woken.set()

    def redial(self) -> None:
        """Make new calls to enrolled agents with what we are and trust now."""
        for host in self._fleet.hosts:
            if host.row.id is not None:
                self._redial(host)

    def _redial(self, host: Host) -> None:
        row = host.row
        if row.name in self._as_current:
            row = replace(row, authority=self._issuer.authority.fingerprint)
        host.client.redial(self._dialler.credentials(row))

    async def _wait(self, seconds: float) -> None:
        await first_completed(self._woken.wait(), self._clock.sleep(seconds), "renewal-look")
        self._woken.clear()

    async def _renew_own(self) -> bool:
        try:
            renewed = await self._issuer.renew_own()
        except (OSError, ValueError) as error:  # a full disk, or a clock beyond its end
            self._metrics.renewals.labels("controlplane", "failed").inc()
            log.error(  # noqa: TRY400 - the text says it all
                "cannot renew the control plane's own certificates", error=str(error)
            )
            return False
        if renewed:
            self._metrics.renewals.labels("controlplane", "renewed").inc()
        return renewed

    def _warn_of_end(self) -> None:
        if self._issuer.authority.is_ending(self._clock.time()):
            log.warning("the authority ends within a year: `authority rotate` replaces it")

    def _is_due(self, host: Host) -> bool:
        row = host.row
        authority = self._issuer.authorities.of(row.authority)
        return row.certificate_expire_ms is not None and authority.is_due(
            row.certificate_expire_ms / 1000, self._clock.time()
        )

    async def _renew(self, host: Host) -> None:
        try:
            await self._certificates.renew(host)
            self._metrics.renewals.labels("agent", "renewed").inc()
        except _FAILURES as error:
            self._metrics.renewals.labels("agent", "failed").inc()
            name, expire_ms = host.name, host.row.certificate_expire_ms or 0
            if expire_ms <= to_ms(self._clock.time()):
                log.error(  # noqa: TRY400 - the text says it all
                    "its certificate has expired: enrol it again", agent=name
                )
            else:
                log.warning("cannot renew its certificate", agent=name, error=str(error))

    def _call_otherwise(self, silent: list[Host]) -> None:
        """Call those with the current certificate who were called with the former, or the reverse.

        A database from the middle of a rotation does not say who has moved since. Who is being
        called may be about to answer, and must be called the same way.
        """
        if self._issuer.authorities.former is None:
            return
        for host in silent:
            if not host.client.is_calling:
                self._as_current ^= {host.name}
                self._redial(host)

    def _is_heard(self, host: Host) -> bool:
        return self._fleet.silent_seconds(host) <= self._fleet.unreachable_after

    def _may_move(self, host: Host) -> bool:
        if not self._is_heard(host):
            return False
        failure = self._failures.get(host.name)
        if failure is None or failure.incarnation != host.incarnation:
            return True
        return self._clock.monotonic() >= failure.again_at

    async def _move(self, host: Host) -> None:
        name = host.name
        try:
            await self._certificates.move(host)
            self._metrics.renewals.labels("agent", "renewed").inc()
        except _FAILURES as error:
            self._metrics.renewals.labels("agent", "failed").inc()
            cause, pause = str(error), MOVE_AGAIN
            if isinstance(error, AgentRefusedError):
                cause, pause = error.text, REFUSED_AGAIN
            again_at = self._clock.monotonic() + pause
            if self.cause(host) != cause:
                log.warning("cannot move to the current authority", agent=name, error=cause)
            self._failures[name] = _Failure(cause, host.incarnation, again_at)


async def _in_turn(hosts: list[Host], work: Callable[[Host], Awaitable[None]], doing: str) -> None:
    """Do something with each host, with a bounded number at the same time."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def turn(host: Host) -> None:
        async with slots:
            await work(host)

    async with asyncio.TaskGroup() as group:
        for host in hosts:
            group.create_task(turn(host), name=f"{doing} {host.name}")
