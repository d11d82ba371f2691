"""Brings enabled tags to the hosts: pulls what a host shall have and does not have.

What is wanted is computed anew whenever a host reports or a tag is enabled, so a host that joins
later catches up by itself.
"""

import asyncio
import logging
from random import Random

from controlplane.errors import AgentRefusedError, AgentSilentError, StoreError
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host_link import HostLink
from controlplane.fleet.watch import BackOff
from controlplane.storage.application_store import ApplicationStore

_log = logging.getLogger(__name__)

MAX_PULLS_PER_HOST = 2
"""More would only share the host's network and disk."""


class Preloader:
    """Owns every pull: one task per host and image, at most two at work on a host."""

    def __init__(self, applications: ApplicationStore, fleet: Fleet, random: Random) -> None:
        """Listen to `fleet` for hosts that report."""
        self._applications = applications
        self._fleet = fleet
        self._random = random
        self._dirty: asyncio.Queue[HostLink] = asyncio.Queue()
        self._queued: set[str] = set()
        self._pulls: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._compared: dict[str, frozenset[str]] = {}
        self._back_off = BackOff(random)
        fleet.on_change(self._on_change)

    def look_at(self, link: HostLink) -> None:
        """Compare what a host has with what it shall have, soon."""
        if link.row.name not in self._queued:
            self._queued.add(link.row.name)
            self._dirty.put_nowait(link)

    def look_at_all(self) -> None:
        """Compare every host, soon."""
        for link in self._fleet.links:
            self.look_at(link)

    def _on_change(self, link: HostLink) -> None:
        if not self._serves(link):
            self._forget(link.row.name)
            return
        # Hosts report at every start of a session; only other images are a reason to compare.
        if link.host is not None and self._compared.get(link.row.name) != link.host.images:
            self.look_at(link)

    def _serves(self, link: HostLink) -> bool:
        return self._fleet.link(link.row.name) is link

    def _forget(self, agent: str) -> None:
        """End the pulls of a host that was removed."""
        self._compared.pop(agent, None)
        self._slots.pop(agent, None)
        for (name, _), pull in self._pulls.items():
            if name == agent:
                pull.cancel()

    async def run(self) -> None:
        """Compare hosts until cancelled, then end the pulls."""
        try:
            while True:
                link = await self._dirty.get()
                self._queued.discard(link.row.name)
                try:
                    await self._compare(link)
                except StoreError as error:
                    _log.warning("cannot read what %s shall have: %s", link.row.name, error)
                    self.look_at(link)
                    await self._back_off.wait()
                else:
                    self._back_off.reset()
        finally:
            pulls = list(self._pulls.values())
            for pull in pulls:
                pull.cancel()
            await asyncio.gather(*pulls, return_exceptions=True)

    async def _compare(self, link: HostLink) -> None:
        if link.host is None:
            return
        name, images = link.row.name, link.host.images
        wanted = await self._wanted(link)
        if not self._serves(link):
            return
        self._compared[name] = images
        for image in sorted(wanted - images):
            key = (name, image)
            if key not in self._pulls:
                self._pulls[key] = asyncio.create_task(
                    self._pull(link, image), name=f"pull {image} on {name}"
                )

    async def _wanted(self, link: HostLink) -> set[str]:
        return await self._applications.desired_images(link.row.region, link.row.node_pool)

    async def _pull(self, link: HostLink, image: str) -> None:
        try:
            await self._pull_until_there(link, image)
        finally:
            del self._pulls[link.row.name, image]

    async def _pull_until_there(self, link: HostLink, image: str) -> None:
        back_off = BackOff(self._random)
        slots = self._slots.setdefault(link.row.name, asyncio.Semaphore(MAX_PULLS_PER_HOST))
        while link.host is not None and image not in link.host.images:
            try:
                if image not in await self._wanted(link):
                    return
                async with slots:
                    await link.client.pull_image(image)
            except (AgentRefusedError, AgentSilentError, StoreError) as error:
                _log.warning("agent %s: cannot pull %s: because %s", link.row.name, image, error)
            await back_off.wait()
