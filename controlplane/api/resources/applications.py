"""Applications and the enabling of tags."""

from aiohttp import web
from typing_extensions import TypedDict

from controlplane.api.operations.operation import Answer, Listing, operation
from controlplane.api.operations.queries import Query, UpTo1000
from controlplane.api.operations.services import caller_of, services_of
from controlplane.api.resources.application_bodies import (
    ApplicationBody,
    ApplicationEditBody,
    ListedApplication,
    TagBody,
    listed,
)
from controlplane.storage.tables.applications.applications import all_of


class AvailableTagsQuery(Query):
    """The query of GET /application/{name}/tags/available."""

    page: UpTo1000 = 1
    pageSize: UpTo1000 = 20  # noqa: N815  # the interface's name


class RegistryTag(TypedDict):
    """A tag in the registry."""

    version: str


class Nothing(TypedDict):
    """An object without properties."""


@operation(201)
async def create_application(request: web.Request, body: ApplicationBody) -> Answer[Nothing]:
    """Create an application."""
    caller = caller_of(request)
    await services_of(request).applications.create_application(
        caller, body.application(caller.account)
    )
    return Answer({})


@operation(key="applications")
async def list_applications(request: web.Request) -> Listing[ListedApplication]:
    """List the applications of the account by name."""
    found = all_of(services_of(request).store, caller_of(request).account)
    return Listing(found, listed)


@operation()
async def edit_application(request: web.Request, body: ApplicationEditBody) -> None:
    """Change an application.

    Absent fields stay as they are; running sessions keep what they started with.
    """
    name = request.match_info["name"]
    await services_of(request).applications.edit_application(
        caller_of(request), name, body.changes()
    )


@operation()
async def enable_tag(request: web.Request, body: TagBody) -> None:
    """Enable a tag of an application, make it the newest and have the hosts pull it."""
    name = request.match_info["name"]
    await services_of(request).tags.enable_tag(caller_of(request), name, body.tag)


@operation(key="tags")
async def list_available_tags(
    request: web.Request, query: AvailableTagsQuery
) -> Listing[RegistryTag]:
    """List the tags that an application's registry has, newest version first."""
    name = request.match_info["name"]
    caller = caller_of(request)
    tags = services_of(request).tags
    found = await tags.available_tags(caller, name, query.page, query.pageSize)
    return Listing(found, lambda version: {"version": version})
