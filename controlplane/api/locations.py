"""Regions, the tags that they have, and where there is room."""

from aiohttp import web

from controlplane.api.services import caller_of, services_of


async def list_regions(request: web.Request) -> web.Response:
    """GET /region."""
    return web.json_response({"regions": await services_of(request).fleet_store.regions()})


async def tag_exists(request: web.Request) -> web.Response:
    """GET /tag/{region}/{image}/{version}."""
    region, image, version = (request.match_info[key] for key in ("region", "image", "version"))
    locations = services_of(request).locations
    exists = await locations.has_tag(caller_of(request), region, image, version)
    return web.json_response({"exists": exists})


async def available_locations(request: web.Request) -> web.Response:
    """GET /available-location/{image}; it changes with every session, so nobody may keep it."""
    locations = services_of(request).locations
    found = await locations.available(caller_of(request), request.match_info["image"])
    return web.json_response(
        {"locations": [{"id": region, "ips": list(ips)} for region, ips in found.items()]},
        headers={"Cache-Control": "no-store"},
    )
