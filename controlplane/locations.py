"""Where an application can be played: regions with a pulled tag and room on a healthy host."""

from controlplane.applications import Applications
from controlplane.errors import BadRequestError, NotFoundError, Violation
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.placement import Wanted
from controlplane.registries.client import TAG
from controlplane.storage.account_store import Caller
from controlplane.storage.tag_store import TagStore


class Locations:
    """Use cases on regions and the tags that their hosts have."""

    def __init__(self, applications: Applications, store: TagStore, fleet: Fleet) -> None:
        self._applications = applications
        self._store = store
        self._fleet = fleet

    async def has_tag(self, caller: Caller, region: str, name: str, version: str) -> bool:
        """Tell whether a healthy host of the region has pulled an enabled tag.

        Raises:
            BadRequestError: `version` cannot be a tag.
            NotFoundError: The application is unknown, or not assigned to the region.
        """
        if not TAG.match(version):
            raise BadRequestError((Violation("version", "cannot be a tag"),))
        application = await self._applications.get(caller, name)
        if region not in application.regions:
            raise NotFoundError("region", region)
        tags = await self._store.enabled(application.account, application.name)
        return any(
            tag.name == version and self._fleet.has_image(region, application.node_pool, tag.image)
            for tag in tags
        )

    async def available(self, caller: Caller, name: str) -> dict[str, tuple[str, ...]]:
        """Give the regions that can take one more session now, with addresses to ping.

        Raises:
            NotFoundError: The application is unknown.
        """
        application = await self._applications.get(caller, name)
        tags = await self._store.enabled(application.account, application.name)
        ports = application.ports
        found: dict[str, dict[str, None]] = {}
        for region in application.regions:
            for tag in tags:
                wanted = Wanted(tag.image, application.reservation, ports)
                hosts = self._fleet.hosts_with_room(region, application.node_pool, wanted)
                for host in hosts:
                    found.setdefault(region, {}).update(dict.fromkeys(host.latency_addresses))
        return {region: tuple(addresses) for region, addresses in found.items()}
