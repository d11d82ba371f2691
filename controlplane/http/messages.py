"""Requests, and responses that are sent in one piece."""

import asyncio
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import getrandbits
from types import MappingProxyType
from typing import cast

from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time

from controlplane.admission.byte_room import HeldBytes

JSON = "application/json"
NO_CONTENT = 204
_TYPE = f"{JSON}; charset=utf-8"
_ALWAYS = "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n"
UNMATCHED = "unmatched"  # Route of requests that match none
_FIXED_BITS = uuid.UUID(int=0, version=4).int  # Of a UUID: its version and variant
_RANDOM_BITS = uuid.UUID(int=2**128 - 1, version=4).int


class Request(web.Request):
    """A request with what the edge and its route know of it."""

    ATTRS = web.Request.ATTRS | {
        "app",
        "account",
        "awaits_continue",
        "body_bytes",
        "identifier",
        "idle_hint",
        "is_forwarded",
        "match_info",
        "received",
        "route",
        "waits_for_client",
    }
    app = cast("web.Application", None)  # Set by the application that answers
    account: str | None = None  # "" for an operator, None until the token is checked
    awaits_continue = False  # Whether the client sends its body after 100 Continue only
    body_bytes: HeldBytes | None = None  # Counted until the request is done
    identifier = ""  # A UUID, in the response and in every log line about the request
    idle_hint = ""  # How long the connection may be idle, for the client
    is_forwarded = False  # Whether `remote` is another address than the connection's
    match_info: Mapping[str, str] = MappingProxyType({})  # type: ignore[assignment]
    """The parameters of the path, decoded."""
    received: bytes | None = None  # The body, from its arrival until it is parsed
    route = UNMATCHED
    waits_for_client = False  # Whether a disconnect cancels its handler now

    async def invite_body(self) -> None:
        """Ask the client for the body, if it waits for that."""
        if self.awaits_continue:
            self.awaits_continue = False
            await self.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.writer.output_size = 0  # the response has not begun

    @contextmanager
    def ended_by_disconnect(self) -> Iterator[None]:
        """Cancel the handler if the client disconnects within this block.

        For waits of which only the client needs the result: its slot, its body, a stream. Other
        work of a handler continues without the client. A write that fails since the client has
        disconnected also cancels the handler.
        """
        if self.transport is None:
            raise asyncio.CancelledError
        self.waits_for_client = True
        try:
            yield
        except ConnectionError:
            if self._is_connected():
                raise
            raise asyncio.CancelledError from None
        finally:
            self.waits_for_client = False

    def _is_connected(self) -> bool:
        wire = self.transport
        return wire is not None and not wire.is_closing()

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
        content_type: str = _TYPE,
    ) -> None:
        """The connection serves no request after the last one."""
        super().__init__(status=status, reason=reason, headers=headers)
        self.content = content
        self._type = content_type
        self.is_last = is_last
        self._keeps_alive = False

    @property
    def keep_alive(self) -> bool:
        """Whether the connection stays open."""
        return self._keeps_alive

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        """Send headers and body."""
        assert isinstance(request, Request)
        content = self.content
        self.content = b""  # the connection holds what its reader has not taken
        self._keeps_alive = _keeps_alive(request) and not self.is_last
        if not self._keeps_alive:
            self.headers["Connection"] = "close"
        elif request.version == HttpVersion10:
            self.headers["Connection"] = "keep-alive"
        elif request.idle_hint:
            self.headers["Keep-Alive"] = request.idle_hint
        head = encoded_head(
            request.identifier,
            None if self.status == NO_CONTENT else len(content),
            status=self.status,
            reason=self.reason,
            headers=self.headers,
            content_type=self._type,
        )
        wire = request.transport
        if wire is None or wire.is_closing():
            raise ConnectionResetError("the client has disconnected")
        wire.write(head if request.method == "HEAD" else head + content)
        await request.writer.drain()
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: everything is sent."""


def identifier() -> str:
    """Return a random UUID of version 4. Faster than uuid4, but guessable."""
    digits = "%032x" % (getrandbits(128) & _RANDOM_BITS | _FIXED_BITS)
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def encoded_head(
    identifier: str,
    length: int | None,
    *,
    status: int = 200,
    reason: str = "OK",
    headers: Mapping[str, str] = MappingProxyType({}),
    content_type: str = _TYPE,
) -> bytes:
    """Encode the head of a response with a body of this length, None for no content."""
    body = ""
    if length is not None:
        body = f"Content-Type: {content_type}\r\nContent-Length: {length}\r\n"
    more = ""
    for name, text in headers.items():
        more += f"{name}: {text}\r\n"
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
    if request.idle_hint and request.version == HttpVersion11 and _keeps_alive(request):
        headers["Keep-Alive"] = request.idle_hint


def _keeps_alive(request: Request) -> bool:
    """Return whether another request can follow: not after a body that was never invited."""
    return request.keep_alive and not request.awaits_continue
