"""Tags: enabling one, and choosing one for a session."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controlplane.domain.access.callers import Caller
from controlplane.domain.applications.applications import Application
from controlplane.domain.applications.registries import Registry
from controlplane.domain.applications.tag_reasons import describe_mismatch
from controlplane.domain.applications.tags import Tag
from controlplane.domain.errors import (
    RETRY_AFTER,
    HostsNotReportedError,
    HostsUnresponsiveError,
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
from controlplane.storage.tables.applications.applications import with_registry
from controlplane.storage.tables.applications.tags import enable_tag
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.failpoints import Reach, no_failpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """Use cases on tags."""

    store: Store
    fleet: Fleet
    resolver: RegistryClient
    clock: Clock
    reach: Reach = no_failpoint

    async def enable_tag(self, caller: Caller, application_name: str, tag: str) -> None:
        """Make a tag the newest of an application and have its hosts pull it.

        Raises:
            InvalidRequestError: The name cannot be a tag, its image may not be pulled, or no host
                of the application's regions can run it.
            NotFoundError: The application is unknown or the registry has no such tag.
            RegistryUnavailableError: The registry was changed meanwhile.
        """
        if not TAG.match(tag):
            raise InvalidRequestError((Violation("tag", "cannot be a tag"),))
        for _ in range(2):
            application, registry = await self._source(caller, application_name)
            found = await self._resolve(registry, application, tag)
            self._check_platforms(application, found)
            await self.reach("tag.resolved")
            now = self.clock.time()
            key = (application.account, application.name)
            is_enabled = await self.store.run(enable_tag, key, found, actor=caller.actor, now=now)
            if is_enabled:
                await self.reach("tag.enabled")
                return
            # The application was given another registry or repository meanwhile.
        raise RegistryUnavailableError(application.registry, "it was changed meanwhile")

    async def available_tags(
        self, caller: Caller, application_name: str, page: int, page_size: int
    ) -> list[str]:
        """Return a page of the tags in the application's registry, newest version first."""
        application, registry = await self._source(caller, application_name)
        tags = await self.resolver.tags(registry, application.repository, caller.account)
        first = (page - 1) * page_size
        return list(tags[first : first + page_size])

    async def choose_tag(
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
            except (NotFoundError, HostsNotReportedError, HostsUnresponsiveError) as error:
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
            HostsUnresponsiveError: If `is_final`: only hosts that do not answer may have it.
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
        if not is_final:
            return named[0]
        if any(self.fleet.may_have_image(*place, tag.image) for tag in named):
            raise HostsUnresponsiveError(
                region, "the hosts that may have the tag do not answer", RETRY_AFTER
            )
        raise NotFoundError("tag", version or "any")

    def _check_platforms(self, application: Application, tag: Tag) -> None:
        """Raise InvalidRequestError if all hosts have reported, and none can run a tag."""
        places = [(region, application.node_pool) for region in application.regions]
        mismatch = describe_mismatch(tag.platform_names, self.fleet.platforms(places))
        if mismatch:
            raise InvalidRequestError((Violation("tag", mismatch),))

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
        platforms = ",".join(found.platforms)
        return Tag(name, found.digest, image, found.size_bytes, platforms, found.command)

    async def _source(self, caller: Caller, name: str) -> tuple[Application, Registry]:
        found = await self.store.look(with_registry, caller.account, name)
        if found is None:
            raise NotFoundError("application", name)
        return found
