"""Requests, and responses that are sent in one piece."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

from aiohttp import HttpVersion10, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time

JSON = "application/json"
NO_CONTENT = 204
UNMATCHED = "unmatched"  # Route of requests that match none


class Request(web.Request):
    """A request with what the edge and its route know of it."""

    ATTRS = web.Request.ATTRS | {"app", "identifier", "is_forwarded", "match_info", "route"}
    app = cast("web.Application", None)  # Set by the application that answers
    identifier = ""  # A UUID, in the response and in every log line about the request
    is_forwarded = False  # Whether `remote` is another address than the connection's
    match_info: Mapping[str, str] = MappingProxyType({})  # type: ignore[assignment]
    """The parameters of the path, decoded."""
    route = UNMATCHED

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        """Add the common headers to a response of aiohttp."""
        add_headers(self, response)


class Reply(web.StreamResponse):
    """A response in one piece; aiohttp's own takes several times as long to send."""

    def __init__(
        self,
        content: bytes = b"",
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        *,
        reason: str | None = None,
        is_last: bool = False,
    ) -> None:
        """`content` is JSON; the connection serves no request after the last one."""
        super().__init__(status=status, reason=reason, headers=headers)
        self.content = content
        self.is_last = is_last
        self._keeps_alive = False

    @property
    def keep_alive(self) -> bool:
        """Whether the connection stays open."""
        return self._keeps_alive

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        """Send headers and body."""
        assert isinstance(request, Request)
        headers, writer = self.headers, request.writer
        if self.status != NO_CONTENT:
            headers["Content-Type"] = f"{JSON}; charset=utf-8"
            headers["Content-Length"] = str(len(self.content))
        headers["Date"] = rfc822_formatted_time()
        self._keeps_alive = request.keep_alive and not self.is_last
        if not self._keeps_alive:
            headers["Connection"] = "close"
        elif request.version == HttpVersion10:
            headers["Connection"] = "keep-alive"
        add_headers(request, self)
        await writer.write_headers(f"HTTP/1.1 {self.status} {self.reason}", headers)
        await writer.write_eof(b"" if request.method == "HEAD" else self.content)
        return writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: everything is sent."""


def add_headers(request: Request, response: web.StreamResponse) -> None:
    """Set the headers that every response carries."""
    headers = response.headers
    headers["X-Request-Id"] = request.identifier
    headers["X-Content-Type-Options"] = "nosniff"
    headers.setdefault("Cache-Control", "no-store")
    headers.pop("Server", None)
