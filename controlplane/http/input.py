"""What the client of a connection sends: requests, read by aiohttp's parser."""

import asyncio
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import StreamReader, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpProcessingError, HttpRequestParser, RawRequestMessage
from aiohttp.http_exceptions import BadStatusLine, InvalidHeader, InvalidURLError, LineTooLong

from controlplane.http.errors import BrokenBodyError

MAX_LINE = 8190  # Bytes of a request line or of a header field
MAX_HEADERS = 64
MAX_HEAD = 32 * 1024  # Bytes of a request line with all headers
MOST_AHEAD = 32  # Requests that wait for an answer; reading pauses until half of them are left
READ_AHEAD = 8 * 1024  # Reading pauses when twice as many bytes of a body wait for their handler
HEAD_KEPT = 4096  # Bytes of an incomplete request head kept to name the path in a refusal
LONG_HEAD = f"the request line and headers are longer than {MAX_HEAD} bytes"

_TARGET = re.compile(rb"[A-Za-z]+ (/[!-~]*)")
_REFUSALS: dict[type[BaseException], str] = {
    LineTooLong: f"the request line or a header field is longer than {MAX_LINE} bytes",
    BadStatusLine: "the request line is malformed",
    InvalidURLError: "the request's target is malformed",
    InvalidHeader: "a header field is malformed",
}
_MALFORMED = "the request is not well-formed HTTP/1.1"

Sent = tuple[RawRequestMessage, StreamReader]
"""The head of a request, and its body, which may not have arrived yet."""


@dataclass(slots=True, eq=False)
class UnreadableError(Exception):
    """Data that is no request. `path` is its target, "/" if that cannot be read."""

    status: int
    details: str
    path: str


class Input:
    """Reads requests; those that were not taken wait."""

    def __init__(self, connection: BaseProtocol, loop: asyncio.AbstractEventLoop) -> None:
        """`connection` is paused and resumed by aiohttp's bodies."""
        self._connection = connection
        self._parser = HttpRequestParser(
            connection,
            loop,
            READ_AHEAD,
            max_line_size=MAX_LINE,
            max_field_size=MAX_LINE,
            max_headers=MAX_HEADERS,
            payload_exception=web.RequestPayloadError,
            auto_decompress=False,  # bodies with a Content-Encoding are refused unread
            max_msg_queue_size=MOST_AHEAD,
        )
        self.waiting = deque[Sent]()
        self._last_body: StreamReader | None = None  # Of the last request that was read
        self._late_body: StreamReader | None = None  # Of a request taken before its end
        self._head = b""  # What has arrived of the next head
        self._head_size = 0  # Bytes since the last body
        self._is_full = False  # Whether enough requests wait
        self._is_unread = False  # Whether enough of a body waits for its handler

    @property
    def bytes_waiting(self) -> int:
        """The bytes that have arrived in the bodies of waiting requests."""
        return sum(body.total_bytes for _, body in self.waiting)

    def feed(self, data: bytes) -> bool:
        """Read data; return whether heads of requests have ended in it.

        Raises:
            UnreadableError: The data is no request; those that wait are not affected.
            BrokenBodyError: A body is malformed; its reader gets the error, too.
        """
        if self._last_body is None or self._last_body.is_eof():
            self._head_size += len(data)
        has_arrived = False
        while True:
            try:
                requests, is_upgrade, rest = self._parser.feed_data(data)
            except HttpProcessingError as error:
                self.break_body("the body is malformed")
                found = (text for kind, text in _REFUSALS.items() if isinstance(error, kind))
                raise self._unreadable(data, 400, next(found, _MALFORMED)) from None
            if requests:
                self._store(requests)
                has_arrived = True
            if is_upgrade:
                self._parser.set_upgraded(False)  # every upgrade is declined: HTTP follows
            elif self._late_body is not None and self._late_body.is_eof():
                self._late_body = None
                self._parser.message_consumed()
            else:
                break
            data = rest
        if has_arrived:
            return True
        if self._head_size > MAX_HEAD:
            raise self._unreadable(data, 431, LONG_HEAD)
        if self._head_size:
            self._head = (self._head + data)[:HEAD_KEPT]
        return False

    def _store(self, requests: Sequence[Sent]) -> None:
        self._last_body = requests[-1][1]
        self._head = b""
        self._head_size = 0
        self.waiting.extend(requests)
        if len(self.waiting) >= MOST_AHEAD:
            self._is_full = True
            self._pause()

    def _unreadable(self, data: bytes, status: int, details: str) -> UnreadableError:
        target = _TARGET.match(self._head + data)
        return UnreadableError(status, details, target[1].decode() if target else "/")

    def break_body(self, reason: str) -> None:
        """Fail the reader of the last body.

        Raises:
            BrokenBodyError: The body has not ended.
        """
        body = self._last_body
        if body is not None and not body.is_eof():
            error = BrokenBodyError(reason)
            body.set_exception(error)
            raise error

    def break_late_body(self, reason: str) -> None:
        """Fail the reader of the body of a request that was taken, unless the body has ended."""
        body = self._late_body
        if body is not None and not body.is_eof():
            body.set_exception(BrokenBodyError(reason))

    def take(self) -> Sent | None:
        """Return the request that has waited longest.

        The parser counts a request when it ends, and ignores it if it is taken off before.
        """
        if not self.waiting:
            return None
        message, body = self.waiting.popleft()
        if body.is_eof():
            self._parser.message_consumed()
        else:
            self._late_body = body
        return message, body

    def refill(self) -> bool:
        """Go on reading if that has paused and fewer requests wait; return whether it goes on.

        What was read already has to be fed again, as no data.
        """
        if not self._is_full or len(self.waiting) > MOST_AHEAD // 2:
            return False
        self._is_full = False
        self._resume()
        return True

    def pause_body(self) -> None:
        """Pause reading, since enough of a body waits for its handler."""
        self._is_unread = True
        self._parser.pause_reading()
        self._pause()

    def resume_body(self) -> None:
        """Go on reading a body.

        What was read already has to be fed again, as no data, even if reading was not paused:
        after many small chunks the parser pauses later than it was asked to.
        """
        if self._is_unread:
            self._is_unread = False
            self._resume()

    def _pause(self) -> None:
        if self._connection.transport is not None:
            self._connection.transport.pause_reading()

    def _resume(self) -> None:
        transport = self._connection.transport
        if transport is not None and not self._is_full and not self._is_unread:
            transport.resume_reading()
