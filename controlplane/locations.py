"""Where an application can be played: regions with room for it, or with a ready standby."""

from controlplane.applications import Applications
from controlplane.errors import BadRequestError, NotFoundError, Violation
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.placement import Wanted
from controlplane.fleet.standby_pools import StandbyPools
from controlplane.registries.client import TAG
from controlplane.storage.account_store import Caller


class Locations:
    """Use cases on regions and the tags that their hosts have."""

    def __init__(
        self,
        applications: Applications,
        fleet: Fleet,
        standbys: StandbyPools,
    ) -> None:
        self._applications = applications
        self._fleet = fleet
        self._standbys = standbys

    async def has_tag(self, caller: Caller, region: str, name: str, version: str) -> bool:
        """Tell whether a healthy host of the region has pulled an enabled tag.

        Raises:
            BadRequestError: `version` cannot be a tag.
            NotFoundError: The application is unknown, or not assigned to the region.
        """
        if not TAG.match(version):
            raise BadRequestError((Violation("version", "cannot be a tag"),))
        application, tags = await self._applications.tagged(caller, name)
        if region not in application.regions:
            raise NotFoundError("region", region)
        return any(
            tag.name == version and self._fleet.has_image(region, application.node_pool, tag.image)
            for tag in tags
        )

    async def available(self, caller: Caller, name: str) -> dict[str, tuple[str, ...]]:
        """Give the regions that can take one more session now, with addresses that answer ping.

        A region is among them whether or not an address of it answers: latency only ranks.

        Raises:
            NotFoundError: The application is unknown.
        """
        application, tags = await self._applications.tagged(caller, name)
        ports = application.ports
        found: dict[str, dict[str, None]] = {}
        for region in application.regions:
            for tag in tags:
                wanted = Wanted(tag.image, application.reservation, ports)
                links = self._fleet.hosts_with_room(region, application.node_pool, wanted)
                for link in links:
                    found.setdefault(region, {}).update(dict.fromkeys(link.latency.answering))
            for link in self._standbys.ready_hosts(caller.account, name, region):
                found.setdefault(region, {}).update(dict.fromkeys(link.latency.answering))
        return {region: tuple(addresses) for region, addresses in found.items()}
