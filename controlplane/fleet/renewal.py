"""Certificates are renewed when two thirds of their life are over: ours, and those of agents.

An agent makes a fresh key for each, so that none lives longer than its certificate. Streams that
are open go on; the next connection has the new one.
"""

import asyncio
import logging
from dataclasses import replace

from controlplane.clock import Clock
from controlplane.errors import AgentRefusedError, AgentSilentError, StoreError
from controlplane.fleet.dialling import Dialler
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host_link import HostLink
from controlplane.issuer import Issuer
from controlplane.storage.enrolment_store import EnrolmentStore

_log = logging.getLogger(__name__)

INTERVAL = 600.0
"""Seconds between two looks; who could not be renewed has ten days of them."""

AT_ONCE = 16
"""Agents that are renewed at the same time."""


class Renewal:
    """Looks after the certificates of a fleet."""

    def __init__(
        self, store: EnrolmentStore, fleet: Fleet, issuer: Issuer, dialler: Dialler, clock: Clock
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._issuer = issuer
        self._dialler = dialler
        self._clock = clock

    async def run(self) -> None:
        """Renew what is due, now and then, until cancelled."""
        while True:
            await self.renew()
            await asyncio.sleep(INTERVAL)

    async def renew(self) -> None:
        """Renew what is due now; an agent that cannot be reached is asked another time."""
        if await self._renew_own():
            for link in self._fleet.links:
                if link.row.id is not None:
                    link.client.redial(self._dialler.credentials(link.row.id))
        slots = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for link in self._fleet.links:
                if self._is_due(link):
                    name = f"renew the certificate of {link.row.name}"
                    group.create_task(self._renew_in_turn(link, slots), name=name)

    async def _renew_own(self) -> bool:
        try:
            return await self._issuer.renew_own()
        except (
            OSError,
            ValueError,
        ) as error:  # a full disk, or a clock beyond the authority's end
            _log.error("cannot renew the control plane's own certificates: %s", error)
            return False

    def _is_due(self, link: HostLink) -> bool:
        expire_ms = link.row.certificate_expire_ms
        now_ms = self._clock.now_ms()
        return expire_ms is not None and self._issuer.authority.is_due(expire_ms, now_ms)

    async def _renew_in_turn(self, link: HostLink, slots: asyncio.Semaphore) -> None:
        async with slots:
            try:
                await self._renew(link)
            except (AgentRefusedError, AgentSilentError, ValueError, StoreError) as error:
                name, expire_ms = link.row.name, link.row.certificate_expire_ms or 0
                if expire_ms <= self._clock.now_ms():
                    _log.error("agent %s: its certificate has expired: enrol it again", name)
                else:
                    _log.warning("agent %s: cannot renew its certificate: %s", name, error)

    async def _renew(self, link: HostLink) -> None:
        row = link.row
        assert row.id is not None, "only an enrolled agent's certificate expires"
        issued = self._issuer.sign_agent(await link.client.renew_certificate(), row.id)
        await link.client.renew_certificate(issued.certificate)
        link.row = replace(row, certificate_expire_ms=issued.expire_ms)
        await self._store.renewed(row, issued.serial, issued.expire_ms, self._clock.now_ms())
        _log.info("agent %s: its certificate is renewed", row.name)
