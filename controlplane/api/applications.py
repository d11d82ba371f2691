"""Applications and the enabling of tags."""

from aiohttp import web

from controlplane.api.application_bodies import (
    ApplicationBody,
    ApplicationEditBody,
    TagBody,
    listed,
)
from controlplane.api.bodies import read_body
from controlplane.api.services import caller_of, services_of


async def create_application(request: web.Request) -> web.Response:
    """POST /application."""
    body = await read_body(request, ApplicationBody)
    caller = caller_of(request)
    await services_of(request).applications.create(caller, body.application(caller.account))
    return web.json_response({}, status=201)


async def list_applications(request: web.Request) -> web.Response:
    """GET /application."""
    found = await services_of(request).applications.all_of(caller_of(request))
    return web.json_response({"applications": [listed(application) for application in found]})


async def edit_application(request: web.Request) -> web.Response:
    """PUT /application/{name}."""
    body = await read_body(request, ApplicationEditBody)
    name = request.match_info["name"]
    await services_of(request).applications.edit(caller_of(request), name, body.edit())
    return web.Response(status=204)


async def enable_tag(request: web.Request) -> web.Response:
    """POST /application/{name}/tags."""
    body = await read_body(request, TagBody)
    name = request.match_info["name"]
    await services_of(request).tags.enable(caller_of(request), name, body.tag)
    return web.Response(status=204)
