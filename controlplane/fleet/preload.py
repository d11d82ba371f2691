"""Brings enabled tags to the hosts: pulls what is missing, removes what is not wanted any more.

What is wanted is computed anew whenever a host reports, a tag is enabled or some time has passed,
so a host that joins later catches up by itself. Only images that once stood for a tag are removed,
and only where the host finds that nothing uses them.
"""

import asyncio
import logging
from random import Random

from controlplane.errors import AgentReason, AgentRefusedError, AgentSilentError, StoreError
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host_link import HostLink
from controlplane.fleet.watch import BackOff
from controlplane.storage.tag_store import HostImages, TagStore

_log = logging.getLogger(__name__)
_IN_USE = AgentReason.IMAGE_IN_USE

MAX_PULLS_PER_HOST = 2
"""More would only share the host's network and disk."""


LONGEST_WAIT = 60.0
"""Seconds between tries of a pull that fails, or of removing an image that is still used."""

REVIEW_INTERVAL = 600.0
"""Seconds after which all hosts are compared, should nothing have been a reason to."""


class Preloader:
    """Owns every pull and removal: one task per host and image, at most two pulls on a host."""

    def __init__(self, tags: TagStore, fleet: Fleet, random: Random) -> None:
        """Listen to `fleet` for hosts that report."""
        self._tags = tags
        self._fleet = fleet
        self._random = random
        self._dirty: asyncio.Queue[HostLink] = asyncio.Queue()
        self._queued: set[str] = set()
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
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
        """End the pulls and removals of a host that was removed."""
        self._compared.pop(agent, None)
        self._slots.pop(agent, None)
        for (name, _), task in self._tasks.items():
            if name == agent:
                task.cancel()

    async def run(self) -> None:
        """Compare hosts until cancelled, then end the pulls and removals."""
        try:
            while True:
                link = await self._next()
                if link is None:
                    self.look_at_all()
                    continue
                try:
                    await self._compare(link)
                except StoreError as error:
                    _log.warning("cannot read what %s shall have: %s", link.row.name, error)
                    self.look_at(link)
                    await self._back_off.wait()
                else:
                    self._back_off.reset()
        finally:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _next(self) -> HostLink | None:
        """Wait for a host to compare; None when there was none for long."""
        try:
            async with asyncio.timeout(REVIEW_INTERVAL):
                link = await self._dirty.get()
        except TimeoutError:
            return None
        self._queued.discard(link.row.name)
        return link

    async def _compare(self, link: HostLink) -> None:
        if link.host is None:
            return
        name, present = link.row.name, link.host.images
        images = await self._images(link, present)
        if not self._serves(link):
            return
        self._compared[name] = present
        for image in sorted((images.wanted - present) | images.surplus):
            key = (name, image)
            if key not in self._tasks:
                self._tasks[key] = asyncio.create_task(
                    self._settle(link, image), name=f"image {image} on {name}"
                )

    async def _images(self, link: HostLink, present: frozenset[str]) -> HostImages:
        return await self._tags.images_of(link.row.region, link.row.node_pool, present)

    async def _settle(self, link: HostLink, image: str) -> None:
        """Pull or remove an image until the host has it or has it not, as is wanted then."""
        back_off = BackOff(self._random, LONGEST_WAIT)
        try:
            while not await self._is_settled(link, image):
                await back_off.wait()
        finally:
            del self._tasks[link.row.name, image]

    async def _is_settled(self, link: HostLink, image: str) -> bool:
        """Tell whether a host has an image as is wanted; if not, do what that takes."""
        name, present = link.row.name, frozenset() if link.host is None else link.host.images
        try:
            images = await self._images(link, present)
            if image in images.wanted - present:
                slots = self._slots.setdefault(name, asyncio.Semaphore(MAX_PULLS_PER_HOST))
                async with slots:
                    await link.client.pull_image(image)
            elif image in images.surplus:
                await link.client.remove_image(image)
            else:
                return True
        except AgentRefusedError as error:
            level = logging.DEBUG if error.agent_reason is _IN_USE else logging.WARNING
            _log.log(level, "agent %s: image %s: %s", name, image, error)
        except (AgentSilentError, StoreError) as error:
            _log.warning("agent %s: image %s: %s", name, image, error)
        return False
