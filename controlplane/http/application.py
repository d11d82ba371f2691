"""Applications: routes, request metrics, errors."""

import asyncio
import re
from collections.abc import Iterable
from functools import cache, partial
from time import perf_counter

from aiohttp import web

from controlplane.http.errors import Handler, answer_error
from controlplane.http.messages import NO_CONTENT, Reply, Request
from controlplane.metrics.http import HttpMetrics

_METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT")
_WHOLE_SERVER = {"/", "*", "/*"}  # Paths of OPTIONS that ask for all methods, as health checks do
_PARAMETER = re.compile(r"\\{(\w+)\\}")


@cache
def _pattern(path: str) -> re.Pattern[str]:
    """Compile a path of a route; cached, since a process may create several applications."""
    return re.compile(_PARAMETER.sub(r"(?P<\1>[^/]+)", re.escape(path)))


class _Resource:
    """A path with the handlers of its methods; `{name}` matches any text but a slash."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.match = _pattern(path).fullmatch
        self.handlers: dict[str, Handler] = {}

    @property
    def allowed(self) -> list[str]:
        """The methods of the path."""
        read = ["HEAD"] if "GET" in self.handlers else []
        return sorted([*self.handlers, *read, "OPTIONS"])

    def handler(self, method: str) -> Handler | None:
        """Return the handler of a method; that of GET sends no body in answer to HEAD."""
        if method == "OPTIONS":
            return partial(_show_methods, self.allowed)
        return self.handlers.get("GET" if method == "HEAD" else method)


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
        if path not in alike:
            alike[path] = _Resource(path)
        alike[path].handlers[method] = handler

    async def answer(self, request: Request) -> web.StreamResponse:
        """Answer a request. Count by route, not path; 499: the client disconnected before."""
        metrics = self._metrics
        status = 500
        began = perf_counter()
        metrics.in_progress += 1
        try:
            try:
                response = await self._handler(request)(request)
            except Exception as error:  # noqa: BLE001 - the last resort of every request
                response = answer_error(request, error)
        except asyncio.CancelledError:
            status = 499
            raise
        else:
            status = 499 if request.transport is None else response.status
            return response
        finally:
            metrics.in_progress -= 1
            metrics.answered(request.method, request.route, status, perf_counter() - began)

    def _handler(self, request: Request) -> Handler:
        """Find the route.

        Raises:
            web.HTTPException: No route has this path, or none its method.
        """
        request.app = self.web
        path = request.rel_url.path_safe
        if request.method == "OPTIONS" and path in _WHOLE_SERVER:
            return partial(_show_methods, _METHODS)
        resource = self._plain.get(path)
        if resource is None:
            for resource in self._by_depth.get(path.count("/"), {}).values():
                if match := resource.match(path):
                    decoded = match.groupdict().items()
                    request.match_info = {name: _decoded(text) for name, text in decoded}
                    break
            else:
                raise web.HTTPNotFound
        handler = resource.handler(request.method)
        if handler is None:
            raise web.HTTPMethodNotAllowed(request.method, resource.allowed)
        request.route = resource.path
        return handler


async def _show_methods(methods: Iterable[str], _: Request) -> Reply:
    return Reply(status=NO_CONTENT, headers={"Allow": ",".join(methods)})


def _decoded(text: str) -> str:
    """Decode what yarl leaves encoded in a path."""
    return text.replace("%2F", "/").replace("%25", "%")
