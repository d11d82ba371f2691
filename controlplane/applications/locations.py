"""Where an application can be played: regions with capacity or a ready standby."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TypeVar

from controlplane.applications.applications import Applications
from controlplane.domain.access.callers import Caller
from controlplane.domain.applications.applications import Application
from controlplane.domain.applications.images import Command
from controlplane.domain.applications.privileges import NO_PRIVILEGES
from controlplane.domain.applications.pulls import PullState
from controlplane.domain.applications.tag_reasons import (
    UNREACHABLE,
    describe_mismatch,
    describe_no_host,
    describe_pull,
)
from controlplane.domain.applications.tags import Tag
from controlplane.domain.errors import BadRequestError, NotFoundError, Violation
from controlplane.domain.placement.placement import Wanted, wanted_for
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.fleet.standby_pools import StandbyPools
from controlplane.fleet.unreported import Place
from controlplane.registries.client import TAG
from tiltyard.contract import Identity
from tiltyard.runtime.clock import Clock

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TagInRegion:
    """Whether a healthy host of a region has pulled an enabled tag.

    `pull`: if none has, the state of its pull, if there is one. `reason`: if none has, why, as far
    as it is known; "" while it is pulled. `warnings`: what to know about its image.
    `preparation_errors`: by address the hosts that cannot prepare containers of it, and why.
    """

    exists: bool
    pull: PullState | None
    reason: str
    warnings: tuple[str, ...]
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
        named = [tag for tag in tags if tag.name == version]
        images = [tag.image for tag in named]
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
        reason = self._why_missing(place, named) if not found else _why_limited(named)
        warnings = named[0].warnings if named else ()
        return TagInRegion(found, pull, reason, warnings, errors)

    def _why_missing(self, place: Place, named: Sequence[Tag]) -> str:
        """Return why no healthy host has an image of these tags; "" while one pulls it."""
        if not named:
            return ""
        hosts = self.fleet.hosts_of(*place)
        if not hosts:
            return describe_no_host(*place)
        for tag in named:
            mismatch = describe_mismatch(tag.platform_names, self.fleet.platforms([place]))
            if mismatch:
                return mismatch
        failed = self.fleet.failed_pull(*place, [tag.image for tag in named])
        if failed is not None:
            return describe_pull(failed.reason)
        is_any_reachable = any(self.fleet.is_responsive(host.name) for host in hosts)
        return "" if is_any_reachable else UNREACHABLE

    async def available(self, caller: Caller, name: str) -> dict[str, tuple[str, ...]]:
        """Return regions that can take one more session now, with addresses that answer ping.

        A region is listed even if none of its addresses answers.

        Raises:
            HostsNotReportedError: An unreported host may have capacity.
        """
        application, tags = await self.applications.tagged(caller, name)
        denied = self.fleet.node_pools.denied(application.node_pool, application.privileges)
        if denied != NO_PRIVILEGES:
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
                addresses = (address for host in hosts for address in host.state.latency.answering)
                found[region] = tuple(dict.fromkeys(addresses))
        return found


def _why_limited(named: Sequence[Tag]) -> str:
    """Return why not every session of these tags can start; "" if each can."""
    without_command = [tag for tag in named if tag.command == Command.NONE]
    return "; ".join(warning for tag in without_command for warning in tag.warnings)
