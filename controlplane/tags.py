"""Tags: enabling one, and choosing the one that a session runs."""

from controlplane.account_store import Caller
from controlplane.application_store import Application, ApplicationStore, Tag
from controlplane.applications import Applications
from controlplane.clock import Clock
from controlplane.errors import InvalidRequestError, NotFoundError, Violation
from controlplane.fleet import Fleet
from controlplane.fleet_store import FleetStore
from controlplane.locations import TAG
from controlplane.preload import Preloader
from controlplane.registry import TagResolver


class Tags:
    """Use cases on tags."""

    def __init__(
        self,
        *,
        applications: Applications,
        store: ApplicationStore,
        fleet_store: FleetStore,
        fleet: Fleet,
        preloader: Preloader,
        resolver: TagResolver,
        clock: Clock,
    ) -> None:
        self._applications = applications
        self._store = store
        self._fleet_store = fleet_store
        self._fleet = fleet
        self._preloader = preloader
        self._resolver = resolver
        self._clock = clock

    async def enable(self, caller: Caller, application_name: str, tag: str) -> None:
        """Make a tag the newest of an application and have its hosts pull it.

        Raises:
            InvalidRequestError: The name cannot be a tag.
            NotFoundError: The application is unknown or the registry has no such tag.
            RegistryUnavailableError: The registry fails.
            RegistryTimeoutError: The registry is silent.
        """
        if not TAG.match(tag):
            raise InvalidRequestError((Violation("tag", "cannot be a tag"),))
        application = await self._applications.get(caller, application_name)
        registry = await self._fleet_store.registry(application.registry)
        assert registry is not None, "an application's registry is a foreign key"
        digest = await self._resolver.resolve(registry, application.repository, tag)
        if digest is None:
            raise NotFoundError("tag", tag)
        image = f"{registry.address}/{application.repository}@{digest}"
        enabled = Tag(tag, digest, image)
        now_ms = self._clock.now_ms()
        try:
            await self._store.enable_tag(application, enabled, caller.actor, now_ms)
        finally:
            # The commit goes on when the caller hangs up; the hosts are compared after it.
            self._preloader.look_at_all()

    async def choose(self, application: Application, region: str, version: str | None) -> Tag:
        """Choose the tag for a session: the named one, else the newest that a host has pulled.

        Raises:
            NotFoundError: It is not enabled, or no healthy host of the region has pulled it.
        """
        tags = await self._store.enabled_tags(application.account, application.name)
        named = [tag for tag in tags if version in {None, tag.name}]
        place = (region, application.node_pool)
        for on_a_host in (self._fleet.can_run_image, self._fleet.has_image):
            for tag in named:
                if on_a_host(*place, tag.image):
                    return tag
        raise NotFoundError("tag", version or "any")
