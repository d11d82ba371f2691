"""Requests, and responses that are sent in one piece."""

import uuid
from collections.abc import Mapping
from random import getrandbits
from types import MappingProxyType
from typing import cast

from aiohttp import HttpVersion10, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time

from controlplane.http.byte_room import HeldBytes

JSON = "application/json"
NO_CONTENT = 204
_TYPE = f"{JSON}; charset=utf-8"
_ALWAYS = "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n"
UNMATCHED = "unmatched"  # Route of requests that match none


class Request(web.Request):
    """A request with what the edge and its route know of it."""

    ATTRS = web.Request.ATTRS | {
        "app",
        "account",
        "arrived",
        "body_bytes",
        "identifier",
        "is_forwarded",
        "match_info",
        "route",
    }
    app = cast("web.Application", None)  # Set by the application that answers
    account: str | None = None  # "" for an operator, None until the token is checked
    arrived = b""  # What was read of its body before it got a task
    body_bytes: HeldBytes | None = None  # Counted until the request is done
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
        headers = self.headers
        content = self.content
        self.content = b""  # the connection holds what its reader has not taken
        writer = request.writer
        self._keeps_alive = request.keep_alive and not self.is_last
        if not self._keeps_alive:
            headers["Connection"] = "close"
        elif request.version == HttpVersion10:
            headers["Connection"] = "keep-alive"
        length = None if self.status == NO_CONTENT else len(content)
        head = encoded_head(
            request.identifier, length, status=self.status, reason=self.reason, headers=headers
        )
        await writer.write(head if request.method == "HEAD" else head + content)
        await writer.drain()
        return writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: everything is sent."""


def identifier() -> str:
    """As uuid4, but without a call of the system: it need not be unguessable."""
    return str(uuid.UUID(int=getrandbits(128), version=4))


def encoded_head(
    identifier: str,
    length: int | None,
    *,
    status: int = 200,
    reason: str = "OK",
    headers: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """Encode the head of a response with JSON of this length, None for no content."""
    body = "" if length is None else f"Content-Type: {_TYPE}\r\nContent-Length: {length}\r\n"
    more = "".join([f"{name}: {text}\r\n" for name, text in headers.items()])
    return (
        f"HTTP/1.1 {status} {reason}\r\n{more}{body}Date: {rfc822_formatted_time()}\r\n"
        f"X-Request-Id: {identifier}\r\n{_ALWAYS}\r\n"
    ).encode()


def add_headers(request: Request, response: web.StreamResponse) -> None:
    """Set the headers that every response of aiohttp carries."""
    headers = response.headers
    headers["X-Request-Id"] = request.identifier
    headers["X-Content-Type-Options"] = "nosniff"
    headers.setdefault("Cache-Control", "no-store")
    headers.pop("Server", None)
