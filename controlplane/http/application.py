"""Applications: routes, request metrics, errors."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

from aiohttp import web
from aiohttp.http import RawRequestMessage

from controlplane.http.errors import Handler, answer_error
from controlplane.http.messages import Request
from controlplane.http.request_slots import RequestSlot
from controlplane.metrics.http import HttpMetrics

_PARAMETER = re.compile(r"\\{(\w+)\\}")


@dataclass(slots=True, eq=False)
class Brief:
    """A request that may be answered with a 200 without a task for its handler."""

    message: RawRequestMessage
    last: str  # The last part of its path
    _metrics: HttpMetrics
    _route: str
    _answer: "AtOnce"
    account: str | None = None  # As a request's
    body: bytes = b""
    slot: RequestSlot | None = None  # Released at the end
    waiting: asyncio.Future[None] | None = (
        None  # For the slot; cancelled if the client disconnects
    )
    _done: Callable[[bytes | None], bool] = lambda _: False
    _began: float = field(default_factory=perf_counter)

    def begin(self, body: bytes, done: Callable[[bytes | None], bool]) -> None:
        """Call `done` once, now or later, with the argument of `finish`.

        It returns whether that can be followed, since the client is still connected.
        """
        self.body = body
        self._done = done
        self._metrics.in_progress += 1
        self._answer(self)

    def finish(self, content: bytes | None) -> None:
        """End with the content of a 200, or with None if the handler must answer."""
        if self.slot is not None:
            self.slot.release()
        self._metrics.in_progress -= 1
        is_open = self._done(content)
        method = self.message.method
        if content is not None or not is_open:
            seconds = perf_counter() - self._began
            status = 200 if is_open else 499
            self._metrics.answered(method, self._route, status, seconds)


AtOnce = Callable[[Brief], None]  # Checks a request as its handler does, and finishes it


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
        self._at_once: dict[tuple[str, str], tuple[str, AtOnce]] = {}

    def add_route(
        self, method: str, path: str, handler: Handler, at_once: AtOnce | None = None
    ) -> None:
        """Add a route; at most one path may match a request.

        The parameter of a path with `at_once` is its last part.
        """
        if at_once is not None:
            self._at_once[method, re.sub(r"{\w+}", "{}", path)] = path, at_once
        alike = self._by_depth.setdefault(path.count("/"), {}) if "{" in path else self._plain
        alike.setdefault(path, _Resource(path)).handlers[method] = handler

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
            status = response.status
            return response
        finally:
            metrics.in_progress -= 1
            metrics.answered(request.method, request.route, status, perf_counter() - began)

    def brief(self, message: RawRequestMessage) -> Brief | None:
        """Return a request that may be answered at once; None if its route has no such way."""
        path = message.url.path_safe
        method = message.method
        place, _, last = path.rpartition("/")
        route = self._at_once.get((method, path)) or self._at_once.get((method, f"{place}/{{}}"))
        if route is None or "%" in last:  # which is not decoded
            return None
        return Brief(message, last, self._metrics, *route)

    def _handler(self, request: Request) -> Handler:
        """Find the route.

        Raises:
            web.HTTPException: There is none.
        """
        request.app = self.web
        path = request.rel_url.path_safe
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
