"""Base of all applications: request metrics, error responses, common headers."""

import asyncio
from time import perf_counter

from aiohttp import web

from controlplane.http.errors import Handler, answer_errors, identifier_of
from controlplane.metrics.http import HttpMetrics

UNMATCHED = "unmatched"
"""Route label of requests that match no route."""


def make_application(metrics: HttpMetrics, max_body: int) -> web.Application:
    """Make an application without routes."""

    @web.middleware
    async def measure(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Count by route, not path; 499: the client disconnected before the answer."""
        resource = request.match_info.route.resource
        route = UNMATCHED if resource is None else resource.canonical
        status, began = 500, perf_counter()
        metrics.in_progress.inc()
        try:
            response = await handler(request)
        except asyncio.CancelledError:
            status = 499
            raise
        else:
            status = response.status
            return response
        finally:
            metrics.in_progress.dec()
            metrics.answered(request.method, route, status, perf_counter() - began)

    app = web.Application(middlewares=[measure, answer_errors], client_max_size=max_body)
    app.on_response_prepare.append(add_headers)
    return app


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Set the headers that every response carries; a signal of the application."""
    response.headers["X-Request-Id"] = identifier_of(request)
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.pop("Server", None)
