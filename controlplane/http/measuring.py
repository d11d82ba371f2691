"""Every request that reaches an application is counted by its route, never by its path."""

from aiohttp import web
from aiohttp.typedefs import Middleware

from controlplane.http.errors import Handler
from controlplane.metrics.http import UNMATCHED, HttpMetrics


def measured(metrics: HttpMetrics) -> Middleware:
    """Make the outermost middleware of an application."""

    @web.middleware
    async def measure(request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        route = UNMATCHED if resource is None else resource.canonical
        with metrics.request(request.method, route) as answered:
            response = await handler(request)
            answered(response.status)
            return response

    return measure
