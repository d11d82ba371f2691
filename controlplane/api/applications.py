"""Applications and the enabling of tags."""

from aiohttp import web
from typing_extensions import TypedDict

from controlplane.api.application_bodies import (
    ApplicationBody,
    ApplicationEditBody,
    ListedApplication,
    TagBody,
    listed,
)
from controlplane.api.operation import Answer, operation
from controlplane.api.services import caller_of, services_of


class Applications(TypedDict):
    """The applications of the account."""

    applications: list[ListedApplication]


class Nothing(TypedDict):
    """An object without properties."""


@operation(201)
async def create_application(request: web.Request, body: ApplicationBody) -> Answer[Nothing]:
    """Create an application."""
    caller = caller_of(request)
    await services_of(request).applications.create(caller, body.application(caller.account))
    return Answer({})


@operation()
async def list_applications(request: web.Request) -> Answer[Applications]:
    """List the applications of the account by name."""
    found = await services_of(request).applications.all_of(caller_of(request))
    return Answer({"applications": [listed(application) for application in found]})


@operation()
async def edit_application(request: web.Request, body: ApplicationEditBody) -> None:
    """Change an application.

    What is absent stays as it is; running sessions keep what they started with.
    """
    name = request.match_info["name"]
    await services_of(request).applications.edit(caller_of(request), name, body.edit())


@operation()
async def enable_tag(request: web.Request, body: TagBody) -> None:
    """Enable a tag of an application, make it the newest and have the hosts pull it."""
    name = request.match_info["name"]
    await services_of(request).tags.enable(caller_of(request), name, body.tag)
