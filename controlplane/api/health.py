"""Liveness and readiness."""

from aiohttp import web

from controlplane.api.services import services_of
from controlplane.errors import NotReadyError


async def get_health(request: web.Request) -> web.Response:
    """GET /healthz: the process answers."""
    return web.json_response({"status": "ok", "environment": services_of(request).environment})


async def get_ready(request: web.Request) -> web.Response:
    """GET /readyz: every agent has reconciled or is known to be out of reach."""
    if not services_of(request).fleet.ready:
        raise NotReadyError
    return web.json_response({"ready": True})
