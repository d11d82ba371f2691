"""Brings enabled tags to the hosts: pulls missing images, removes those that are not needed.

Desired and actual images are compared whenever a host reports other images, a tag is enabled or
some time has passed, so that a host that joins later catches up. Only images of former tags are
removed, if the host finds that nothing uses them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from controlplane.domain.contract import RegistryLogin
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.images import HostPreload, Means
from controlplane.fleet.host.pulls import Pull
from controlplane.fleet.host.state import HostState
from controlplane.storage.tables.tags import TagStore
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.tasks import TaskOwner


class Preloader:
    """Owns what is done about the images of each host."""

    def __init__(
        self,
        tags: TagStore,
        fleet: Fleet,
        *,
        login_for: Callable[[str], Awaitable[RegistryLogin | None]],
        clock: Clock,
        random: Random,
    ) -> None:
        """Listen to `fleet` for hosts that report; `login_for` gives an image's registry's."""
        self._fleet = fleet
        self._means = Means(tags, login_for, fleet.is_responsive, clock, random)
        self._hosts: dict[str, HostPreload] = {}
        self._leaving = TaskOwner[None]()
        self._defect: BaseException | None = None
        self._defective = asyncio.Event()
        self._ends = False
        fleet.on_change(self._on_change)

    @property
    def idle(self) -> bool:
        """True when every host has all desired images, as far as was compared."""
        return all(host.idle for host in self._hosts.values())

    def pulls(self, link: HostState) -> list[Pull]:
        """Give the pulls of a host that are not over: those being made first."""
        host = self._hosts.get(link.row.name)
        return [] if host is None else host.pulls

    def look_at_all(self) -> None:
        """Schedule a comparison of actual and desired images on all hosts."""
        for host in self._hosts.values():
            host.look()

    async def run(self) -> None:
        """Serve until cancelled or a defect, then end the pulls and removals."""
        try:
            await self._defective.wait()
            raise RuntimeError("the images of a host are not looked after") from self._defect
        finally:
            self._ends = True
            for name in list(self._hosts):
                self._leave(name)
            await self._leaving.wait()

    def _on_change(self, link: HostState) -> None:
        name = link.row.name
        host = self._hosts.get(name)
        if host is not None and (host.host is not link or self._fleet.host(name) is not link):
            self._leave(name)
            host = None
        if host is not None:
            host.on_change()
        elif self._fleet.host(name) is link and not self._ends:
            self._hosts[name] = host = HostPreload(link, self._means)
            host.task.add_done_callback(self._host_done)

    def _host_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._defect = task.exception()
            self._defective.set()

    def _leave(self, name: str) -> None:
        """End what is done about a host."""
        host = self._hosts.pop(name)
        self._leaving.start(host.close(), f"leave images of {name}")
