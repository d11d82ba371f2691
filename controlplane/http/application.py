"""Applications: routes, request metrics, errors."""

import asyncio
import re
from time import perf_counter

from aiohttp import web

from controlplane.http.errors import Handler, answer_error
from controlplane.http.messages import Request
from controlplane.metrics.http import HttpMetrics

_PARAMETER = re.compile(r"\\{(\w+)\\}")


class _Resource:
    """A path with the handlers of its methods; `{name}` matches any text but a slash."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.match = re.compile(_PARAMETER.sub(r"(?P<\1>[^/]+)", re.escape(path))).fullmatch
        self.handlers: dict[str, Handler] = {}


class Application:
    """Calls the handler of each request's route.

    Without aiohttp's router, middlewares and signals, which take longer than most handlers.
    """

    def __init__(self, metrics: HttpMetrics) -> None:
        self.web = web.Application()  # What the handlers share, and hooks; it has no routes
        self._metrics = metrics
        self._plain: dict[str, _Resource] = {}
        self._by_depth: dict[int, dict[str, _Resource]] = {}

    def add_route(self, method: str, path: str, handler: Handler) -> None:
        """Add a route; at most one path may match a request."""
        alike = self._by_depth.setdefault(path.count("/"), {}) if "{" in path else self._plain
        alike.setdefault(path, _Resource(path)).handlers[method] = handler

    async def answer(self, request: Request) -> web.StreamResponse:
        """Answer a request. Count by route, not path; 499: the client disconnected before."""
        metrics, status, began = self._metrics, 500, perf_counter()
        metrics.in_progress.inc()
        try:
            try:
                response = await self._handler(request)(request)
            except Exception as error:  # noqa: BLE001 - the last resort of every request
                response = answer_error(request, error)
        except asyncio.CancelledError:
            status = 499
            raise
        else:
            status = response.status
            return response
        finally:
            metrics.in_progress.dec()
            metrics.answered(request.method, request.route, status, perf_counter() - began)

    def _handler(self, request: Request) -> Handler:
        """Find the route.

        Raises:
            web.HTTPException: There is none.
        """
        request.app, path = self.web, request.rel_url.path_safe
        resource = self._plain.get(path)
        if resource is None:
            for resource in self._by_depth.get(path.count("/"), {}).values():
                if match := resource.match(path):
                    decoded = match.groupdict().items()
                    request.match_info = {name: _decoded(text) for name, text in decoded}
                    break
            else:
                raise web.HTTPNotFound
        handler = resource.handlers.get(request.method)
        if handler is None:
            raise web.HTTPMethodNotAllowed(request.method, resource.handlers)
        request.route = resource.path
        return handler


def _decoded(text: str) -> str:
    """Decode what yarl leaves encoded in a path."""
    return text.replace("%2F", "/").replace("%25", "%")
