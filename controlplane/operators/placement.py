"""Explanation of placement: where a session would go now, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from controlplane.applications.tags import Tags
from controlplane.domain.applications.applications import Application
from controlplane.domain.applications.pulls import Pull
from controlplane.domain.applications.tags import Tag
from controlplane.domain.errors import NotFoundError
from controlplane.domain.placement.explanation import Candidate
from controlplane.domain.placement.placement import Strategy, wanted_for
from controlplane.fleet.fleet import Fleet
from controlplane.sessions.start_request import Pin, requested_ports
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.applications.applications import tagged
from tiltyard.contract import Identity


@dataclass(frozen=True, slots=True)
class ExplainedPlacement:
    """The application and tag that a start would run, and the hosts as placement ranks them.

    `pulls` are the unfinished pulls of the image by agent.
    """

    application: Application
    tag: Tag
    strategy: Strategy
    candidates: tuple[Candidate, ...]
    pulls: Mapping[str, Pull]


@dataclass(frozen=True, slots=True)
class Explanations:
    """Use cases on placement."""

    store: Store
    tags: Tags
    fleet: Fleet

    async def explain(
        self,
        account: str,
        name: str,
        *,
        location: str,
        version: str | None,
        pins: Mapping[str, Pin],
    ) -> ExplainedPlacement:
        """Explain where a session would be placed now; nothing is reserved.

        The tag is that of a start, or the newest one if no host has pulled any. `pins` are by
        their names in the request.

        Raises:
            NotFoundError: The account has no such application, it is not assigned to the region,
                or the tag is not enabled.
            InvalidRequestError: A pin does not fit the application.
        """
        found = await self.store.look(tagged, (account, name))
        if found is None:
            raise NotFoundError("application", name)
        application, tags = found
        ports = requested_ports(application, tuple(pins.values()), tuple(pins))
        if location not in application.regions:
            raise NotFoundError("region", location)
        tag = self.tags.preferred(application, tags, location, version)
        identity = Identity(account, "", name, tag.name, location)
        wanted = wanted_for(replace(application.spec(identity, tag.image), ports=ports))
        node_pool = application.node_pool
        candidates = self.fleet.explain(location, node_pool, wanted, application.privileges)
        pulls = {
            host.name: pull
            for host in self.fleet.hosts
            for pull in host.images.pulls
            if pull.image == tag.image
        }
        strategy = self.fleet.node_pools.strategy(node_pool)
        return ExplainedPlacement(application, tag, strategy, candidates, pulls)
