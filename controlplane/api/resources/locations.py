"""Regions, their tags, and where there is capacity."""

from typing import NotRequired

from aiohttp import web
from typing_extensions import TypedDict

from controlplane.api.operations.operation import Answer, Listing, operation
from controlplane.api.operations.services import caller_of, services_of
from controlplane.domain.applications.pulls import PullState
from controlplane.storage.tables.hosts.fleet import regions

MAX_ERRORS = 20  # Enough to show a problem


class TagExistence(TypedDict):
    """Whether sessions can run a tag in a region.

    `pull`: if not, the state of the pulls of its image there; absent without one. `reason`: why
    not, as far as it is known, or why only with arguments; absent while hosts pull it. `warnings`:
    what to know about the command of its image; absent without any.
    `preparationErrors`: why hosts there cannot prepare containers of its image, at most 20, by
    their addresses; absent without one. Starts do not depend on them.
    """

    exists: bool
    pull: NotRequired[PullState]
    reason: NotRequired[str]
    warnings: NotRequired[list[str]]
    preparationErrors: NotRequired[dict[str, str]]  # as in the answer


class Location(TypedDict):
    """A region with capacity, and IPv4 addresses that answer ping."""

    id: str
    ips: list[str]


@operation(key="regions")
async def list_regions(request: web.Request) -> Listing[str]:
    """List the regions."""
    found = await services_of(request).store.look(regions)
    return Listing(found, str)


@operation()
async def tag_exists(request: web.Request) -> Answer[TagExistence]:
    """Return whether a healthy host of a region has an enabled tag of an application.

    `image` is the application's name.
    """
    region = request.match_info["region"]
    image = request.match_info["image"]
    version = request.match_info["version"]
    locations = services_of(request).locations
    found = await locations.find_tag(caller_of(request), region, image, version)
    shown: TagExistence = {"exists": found.exists}
    if found.pull is not None:
        shown["pull"] = found.pull
    if found.reason:
        shown["reason"] = found.reason
    if found.warnings:
        shown["warnings"] = list(found.warnings)
    if found.preparation_errors:
        errors = sorted(found.preparation_errors.items())
        shown["preparationErrors"] = dict(errors[:MAX_ERRORS])
    return Answer(shown)


@operation(key="locations")
async def available_locations(request: web.Request) -> Listing[Location]:
    """List the regions that can host an application now, with addresses to ping.

    `image` is the application's name. Do not cache the answer: it changes with every session.
    """
    locations = services_of(request).locations
    found = await locations.available(caller_of(request), request.match_info["image"])
    return Listing(list(found.items()), lambda each: {"id": each[0], "ips": list(each[1])})
