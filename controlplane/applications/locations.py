"""Where an application can be played: regions with capacity or a ready standby."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TypeVar

from controlplane.applications.applications import Applications
from controlplane.domain.errors import BadRequestError, NotFoundError, Violation
from controlplane.domain.placement import Wanted, wanted_for
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.fleet.host.images import PullState
from controlplane.fleet.standby_pools import StandbyPools
from controlplane.fleet.unreported import Place
from controlplane.registries.client import TAG
from controlplane.storage.tables.accounts import Caller
from controlplane.storage.tables.applications import Application
from controlplane.storage.tables.tags import Tag
from tiltyard.contract import Identity
from tiltyard.runtime.clock import Clock

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TagInRegion:
    """Whether a healthy host of a region has pulled an enabled tag.

    `pull`: if none has, the state of its pull, if there is one. `preparation_errors`: by address
    the hosts that cannot prepare containers of it, and why.
    """

    exists: bool
    pull: PullState | None
    preparation_errors: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Locations:
    """Use cases on regions and the tags that their hosts have.

    Calls wait at most `patience` seconds for hosts that could change an answer.
    """

    applications: Applications
    fleet: Fleet
    standbys: StandbyPools
    _: KW_ONLY
    patience: float
    clock: Clock

    async def find_tag(self, caller: Caller, region: str, name: str, version: str) -> TagInRegion:
        """Return whether a healthy host of the region has pulled an enabled tag.

        Raises:
            BadRequestError: `version` cannot be a tag.
            NotFoundError: The application is unknown, or not assigned to the region.
            HostsNotReportedError: No host that has reported has it.
        """
        if not TAG.match(version):
            raise BadRequestError((Violation("version", "cannot be a tag"),))
        application, tags = await self.applications.tagged(caller, name)
        if region not in application.regions:
            raise NotFoundError("region", region)
        images = [tag.image for tag in tags if tag.name == version]
        place = (region, application.node_pool)

        def is_on_a_host() -> bool:
            found = any(self.fleet.has_image(*place, image) for image in images)
            if images and not found:
                self.fleet.unreported.check([place])
            return found

        found = await self._when_known(is_on_a_host, [place], images)
        pull = None if found else self.fleet.pull_state(*place, images)
        errors: dict[str, str] = {}
        for image in images:
            spec = application.spec(Identity(application.account, "", name, "", region), image)
            errors |= self.fleet.preparation_errors(*place, wanted_for(spec).shape)
        return TagInRegion(found, pull, errors)

    async def available(self, caller: Caller, name: str) -> dict[str, tuple[str, ...]]:
        """Return regions that can take one more session now, with addresses that answer ping.

        A region is listed even if none of its addresses answers.

        Raises:
            HostsNotReportedError: An unreported host may have capacity.
        """
        application, tags = await self.applications.tagged(caller, name)
        if not self.fleet.node_pools.allows(application.node_pool, application.network_mode):
            return {}
        places = [(region, application.node_pool) for region in application.regions]

        def look() -> dict[str, tuple[str, ...]]:
            found = self._with_room(caller.account, application, tags)
            missing = [place for place in places if place[0] not in found]
            if tags:
                self.fleet.unreported.check(missing, taking=True)
            return found

        return await self._when_known(look, places, [tag.image for tag in tags])

    async def _when_known(
        self, look: Callable[[], _T], places: Sequence[Place], images: Sequence[str]
    ) -> _T:
        deadline = self.clock.monotonic() + self.patience
        return await self.fleet.unreported.wait_for(
            look, places=places, images=images, deadline=deadline
        )

    def _with_room(
        self, account: str, application: Application, tags: Sequence[Tag]
    ) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for region in application.regions:
            hosts: list[Host] = []
            for tag in tags:
                wanted = Wanted(tag.image, application.reservation, application.ports)
                hosts += self.fleet.hosts_with_room(region, application.node_pool, wanted)
            hosts += self.standbys.ready_hosts(account, application.name, region)
            if hosts:
                addresses = (address for host in hosts for address in host.latency.answering)
                found[region] = tuple(dict.fromkeys(addresses))
        return found
