"""Tags: enabling one, and choosing one for a session."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controlplane.domain.errors import (
    HostsNotReportedError,
    ImageRefusedError,
    InvalidRequestError,
    NotFoundError,
    RegistryUnavailableError,
    TiltyardError,
    Violation,
)
from controlplane.fleet.fleet import Fleet
from controlplane.registries.client import TAG, RegistryClient
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.accounts import Caller
from controlplane.storage.tables.applications import Application, with_registry
from controlplane.storage.tables.registries import Registry
from controlplane.storage.tables.tags import Tag, enable_tag
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.failpoints import Reach, no_failpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """Use cases on tags. `changed` is called when hosts may need other images or standbys."""

    store: Store
    fleet: Fleet
    changed: Callable[[], None]
    resolver: RegistryClient
    clock: Clock
    reach: Reach = no_failpoint

    async def enable(self, caller: Caller, application_name: str, tag: str) -> None:
        """Make a tag the newest of an application and have its hosts pull it.

        Raises:
            InvalidRequestError: The name cannot be a tag, or its image may not be pulled.
            NotFoundError: The application is unknown or the registry has no such tag.
            RegistryUnavailableError: The registry was changed meanwhile.
        """
        if not TAG.match(tag):
            raise InvalidRequestError((Violation("tag", "cannot be a tag"),))
        for _ in range(2):
            application, registry = await self._source(caller, application_name)
            found = await self._resolve(registry, application, tag)
            await self.reach("tag.resolved")
            now = self.clock.time()
            key = (application.account, application.name)
            if await self.store.run_then(
                lambda _: self.changed(), enable_tag, key, found, actor=caller.actor, now=now
            ):
                await self.reach("tag.enabled")
                return
            # The application was given another registry or repository meanwhile.
        raise RegistryUnavailableError(application.registry, "it was changed meanwhile")

    async def available(
        self, caller: Caller, application_name: str, page: int, page_size: int
    ) -> list[str]:
        """Return a page of the tags in the application's registry, newest version first."""
        application, registry = await self._source(caller, application_name)
        tags = await self.resolver.tags(registry, application.repository, caller.account)
        first = (page - 1) * page_size
        return list(tags[first : first + page_size])

    async def choose(
        self,
        application: Application,
        tags: Sequence[Tag],
        region: str,
        version: str | None,
        *,
        is_served: Callable[[], bool],
        deadline: float,
    ) -> tuple[Tag, TiltyardError | None]:
        """Choose an enabled tag for a session: the named, or the newest that a host has pulled.

        Waits until `deadline` for unreported hosts that could change the choice. Without a tag,
        if the session `is_served` by a standby, returns a placeholder and the error.
        """

        def look() -> tuple[Tag, TiltyardError | None]:
            try:
                return self.preferred(application, tags, region, version, is_final=True), None
            except (NotFoundError, HostsNotReportedError) as error:
                if not is_served():
                    raise
                return Tag(version or "", "", ""), error

        return await self.fleet.unreported.wait_for(
            look,
            places=[(region, application.node_pool)],
            images=[tag.image for tag in tags],
            deadline=deadline,
        )

    def preferred(
        self,
        application: Application,
        tags: Sequence[Tag],
        region: str,
        version: str | None,
        *,
        is_final: bool = False,
    ) -> Tag:
        """Return the tag that `choose` prefers, else the newest, unless `is_final`.

        Raises:
            NotFoundError: It is not enabled, or `is_final` and no host has pulled it.
            HostsNotReportedError: If `is_final`: it depends on hosts that have not reported.
        """
        named = [tag for tag in tags if version in {None, tag.name}]
        if not named:
            raise NotFoundError("tag", version or "any")
        place = (region, application.node_pool)
        # A drained host that has not reported cannot run a tag, but may have it.
        for usable in (True, False):
            for tag in named:
                if self.fleet.has_image(*place, tag.image, usable=usable):
                    return tag
                if is_final:
                    self.fleet.unreported.check([place], taking=usable)
        if is_final:
            raise NotFoundError("tag", version or "any")
        return named[0]

    async def _resolve(self, registry: Registry, application: Application, name: str) -> Tag:
        repository = application.repository
        account = application.account
        try:
            found = await self.resolver.resolve(registry, repository, name, account=account)
        except ImageRefusedError as error:
            raise InvalidRequestError((Violation("tag", f"its image {error}"),)) from None
        if found is None:
            raise NotFoundError("tag", name)
        image = f"{registry.address}/{repository}@{found.digest}"
        return Tag(name, found.digest, image, found.size_bytes)

    async def _source(self, caller: Caller, name: str) -> tuple[Application, Registry]:
        found = await self.store.look(with_registry, caller.account, name)
        if found is None:
            raise NotFoundError("application", name)
        return found
