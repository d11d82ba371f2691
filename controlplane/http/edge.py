"""The edge of the HTTP API: deadlines, caps and protocol errors of connections.

aiohttp by itself has no deadline for slow clients and quotes rejected input in its errors. Here
every connection has deadlines and counts against caps, and every refusal is an ErrorResponse.
"""

import asyncio
import json
import logging
import re
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from aiohttp import HttpVersion10, HttpVersion11, StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import BadStatusLine, InvalidHeader, InvalidURLError, LineTooLong

from controlplane.admission.byte_room import ByteRoom, HeldBytes
from controlplane.http.application import Application
from controlplane.http.errors import REFUSED, BrokenBodyError, error_body, level_of
from controlplane.http.gate import Gate, listen
from controlplane.http.messages import Reply, Request, encoded_head, identifier
from tiltyard.runtime.logging.events import bind, get_logger

log = get_logger(__name__)

MAX_HEADERS = 64
MAX_HEAD = 32 * 1024  # Bytes of a request line with all headers
MAX_AHEAD = 32 * 1024  # Bytes in the bodies of requests that were sent before an answer
READ_AHEAD = 8 * 1024  # Reading pauses when twice as many bytes of a body wait for their handler
SOURCE = 256 * 1024
"""Bytes that the source of a response has read ahead: a chunk of a stream, a portion of a list."""
IDLE_MARGIN = 5.0
"""Seconds that a connection stays open longer than announced, so that no request meets its end."""
HEAD_KEPT = 4096  # Bytes of an incomplete request head kept to name the path in a refusal

_TARGET = re.compile(rb"[A-Za-z]+ (/[!-~]*)")
_REFUSALS: dict[type[BaseException], str] = {
    LineTooLong: "the request line or a header field is longer than 8190 bytes",
    BadStatusLine: "the request line is malformed",
    InvalidURLError: "the request's target is malformed",
    InvalidHeader: "a header field is malformed",
}
_is_logged = logging.root.isEnabledFor  # Cheaper than a structured logger's
_LONG_HEAD = f"the request line and headers are longer than {MAX_HEAD} bytes"
_MESSAGES = {
    400: "bad request",
    431: "request header fields too large",
    503: "service unavailable",
}
_MALFORMED = "the request is not well-formed HTTP/1.1"


@dataclass(frozen=True, slots=True)
class Limits:
    """Deadlines of a connection, in seconds."""

    header: float = 10.0
    """From connecting, or a later request's first byte, to the end of the headers; also for a
    TLS handshake."""
    body: float = 30.0  # From there to the end of the body: the maximum of 1 MiB at 280 kbit/s
    idle: float = 75.0
    """Between requests: longer than clients and proxies usually keep a connection (60 s)."""
    stall: float = 120.0
    """For a reader without any progress. Slow readers, idle logs and long downloads are not
    limited: they keep one chunk in memory."""
    linger: float = 2.0
    """For discarding input after a refusal: closing at once would reset the connection, and the
    client could lose the response."""


class Connection(web.RequestHandler):
    """An aiohttp connection with deadlines and documented error responses."""

    def __init__(
        self, server: web.Server, limits: Limits, gate: Gate, responses: ByteRoom
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # as web.AppRunner does
            keepalive_timeout=limits.idle,
            max_headers=MAX_HEADERS,
            read_bufsize=READ_AHEAD,
            auto_decompress=False,  # bodies with a Content-Encoding are refused unread
        )
        self._limits = limits
        self._gate = gate
        self._request: Request | None = None  # The request in progress
        self._lost = self._loop.create_future()
        self._responses = responses
        self._unsent: HeldBytes | None = None
        self._wire: asyncio.Transport
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._busy = False
        self._broken = False
        self._body: StreamReader | None = None
        self._last_body: StreamReader | None = None  # Of the last request that was read
        self._head_size = 0  # Bytes since that body
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the header deadline; pause writing while the kernel accepts no more.

        A high-water mark of 0 would stall asyncio's TLS with nothing left to send.
        """
        self._wire = cast("asyncio.Transport", transport)
        self._wire.set_write_buffer_limits(high=1)
        self._await_head()
        super().connection_made(transport)

    @property
    def peer(self) -> str:
        """The address of the peer."""
        return str((self.peername or ("",))[0])

    def connection_lost(self, exc: BaseException | None) -> None:
        """Cancel the deadlines, and the handler if it waits for the client.

        Another handler continues, and keeps the place of its connection until it ends.
        """
        self._disarm()
        self._stop_watching()
        self._lost.set_result(None)
        if self._last_body is not None and not self._last_body.is_eof():
            # aiohttp would wait 10 s for the rest of a body that its handler has not read.
            self._last_body.set_exception(BrokenBodyError("the client disconnected"))
        request = self._request
        if request is not None and request.worker is not None:
            request.kept_place = self.peer
            self._gate.keep(self.peer)
            if request.waits_for_client:
                request.worker.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse input. After malformed input, discard the rest and fail the reader of the body.

        In aiohttp the reader of a body with a bad chunk would wait forever.
        """
        if self._broken:
            return
        if data and not self._busy:
            self._head = (self._head + data)[:HEAD_KEPT]
        if self._last_body is None or self._last_body.is_eof():
            self._head_size += len(data)
        parsed = self._request_count
        super().data_received(data)
        if self._request_count != parsed:
            self._last_body = self._messages[-1][1]
            self._head_size = 0
            self._limit_ahead()
        elif self._head_size > MAX_HEAD:
            self._refuse_head()
        if not self._messages:
            if data and not self._busy and self._deadline is None:
                self._await_head()
        elif not isinstance(self._messages[-1][0], RawRequestMessage):
            self._broken = True
            self._break_body("the body is malformed")

    def _refuse_head(self) -> None:
        """Answer a head that is too long before its end, if no other answer is under way."""
        self._broken = True
        if self._busy:
            self._wire.abort()
            return
        sent = _TARGET.match(self._head)
        name = identifier()
        path = sent[1].decode() if sent else "/"
        _log_refusal(name, self.peer, 431, _LONG_HEAD)
        body = error_body(path, name, status=431, message=_MESSAGES[431], details=_LONG_HEAD)
        content = json.dumps(body).encode()
        head = encoded_head(
            name, len(content), status=431, reason="", headers={"Connection": "close"}
        )
        self._wire.write(head + content)
        if self._wire.can_write_eof():
            self._wire.write_eof()
        self._disarm()
        self._deadline = self._loop.call_later(self._limits.linger, self._wire.abort)

    def _limit_ahead(self) -> None:
        """Serve no further request if the bodies of those that wait are too long."""
        if self._busy and sum(body.total_bytes for _, body in self._messages) > MAX_AHEAD:
            self.close()

    def begin(self, request: Request, body: StreamReader) -> None:
        """Note the end of a request's headers, and start the body deadline."""
        self._busy = True
        self._request = request
        self._body = body
        self._disarm()
        if not body.is_eof():
            late = f"the body was not received within {self._limits.body:g} s"
            self._deadline = self._loop.call_later(self._limits.body, self._break_body, late)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the rest of a response; the next deadline starts with the next byte."""
        try:
            sent = await super().finish_response(request, resp, start_time)
            if isinstance(resp, Reply) and resp.is_last:
                await self._linger()
            return sent
        finally:
            self._busy = False
            self._request = None
            self._body = None
            self._head = b""
            self._disarm()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a request that the parser rejected or that failed outside the application."""
        assert isinstance(request, Request)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun")
        if status == 400:
            self._broken = True
            sent = _TARGET.match(self._head)
            details = next((_REFUSALS[k] for k in _REFUSALS if isinstance(exc, k)), _MALFORMED)
            return _refuse(request, 400, details, sent[1].decode() if sent else "/")
        log.error("request failed at the edge", exc_info=exc)
        return _refuse(request, 500, "the server's log has the cause", request.raw_path)

    def pause_writing(self) -> None:
        """Start watching a slow reader; disconnect it if its account has too many of them."""
        super().pause_writing()
        unsent = self._wire.get_write_buffer_size()
        account = None if self._request is None else self._request.account
        self._unsent = self._responses.hold(account)
        if self._unsent.grow(unsent + SOURCE):
            self._watch_reader(unsent + 1)
        else:
            self._loop.call_soon(self._wire.abort)

    def resume_writing(self) -> None:
        """Stop watching."""
        self._stop_watching()
        super().resume_writing()

    def _stop_watching(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
        if self._unsent is not None:
            self._unsent.release()
            self._unsent = None

    def _watch_reader(self, before: int) -> None:
        unread = self._wire.get_write_buffer_size()
        if unread >= before:
            self._wire.abort()
        else:
            self._stalled = self._loop.call_later(self._limits.stall, self._watch_reader, unread)

    def _await_head(self) -> None:
        self._deadline = self._loop.call_later(self._limits.header, self._wire.abort)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _break_body(self, reason: str) -> None:
        if self._body is not None and not self._body.is_eof():
            self._body.set_exception(BrokenBodyError(reason))

    async def _linger(self) -> None:
        """Wait for the client to disconnect."""
        self._broken = True
        with suppress(OSError):  # the client has disconnected already
            if self._wire.can_write_eof():
                self._wire.write_eof()
        await asyncio.wait({self._lost}, timeout=self._limits.linger)


class Edge:
    """Listens, and checks requests before the application: version, expectation, caps."""

    def __init__(self, gate: Gate, limits: Limits, responses: ByteRoom) -> None:
        self._limits = limits
        self._responses = responses
        self._gate = gate
        self._servers: list[asyncio.Server] = []
        announced = int(limits.idle - IDLE_MARGIN)
        self._idle_hint = f"timeout={announced}" if announced > 0 else ""
        self._workers = set[asyncio.Task[None]]()  # The tasks of all handlers that run
        self._app: Application

    async def open(
        self,
        server: web.Server,
        app: Application,
        address: tuple[str, int],
        tls: ssl.SSLContext | None,
    ) -> str:
        """Listen, let `app` answer, and return the base URL."""
        self._app = app
        server.request_factory = cast("Callable[..., web.BaseRequest]", self._begin)
        server.request_handler = cast("Callable[..., Awaitable[Reply]]", self._answer)
        loop = asyncio.get_running_loop()
        for listener in await listen(*address, self._gate):
            self._servers.append(
                await loop.create_server(
                    lambda: Connection(server, self._limits, self._gate, self._responses),
                    sock=listener,
                    ssl=tls,
                    ssl_handshake_timeout=self._limits.header if tls else None,
                    ssl_shutdown_timeout=self._limits.linger if tls else None,
                )
            )
        host, port = self._servers[0].sockets[0].getsockname()[:2]
        return f"http{'s' if tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"

    def close(self) -> None:
        """Stop accepting connections."""
        for server in self._servers:
            server.close()

    async def finish(self, timeout: float) -> None:
        """Wait for handlers whose clients have disconnected; cancel those that are not in time."""
        if not self._workers:
            return
        _, late = await asyncio.wait(self._workers, timeout=timeout)
        for worker in late:
            worker.cancel()
        if late:
            await asyncio.wait(late)

    def _begin(  # noqa: PLR0917  # aiohttp gives the arguments
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: Connection,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> Request:
        """Create the request of complete headers; `remote` is the caller, not the proxy."""
        forwarded = message.headers.getall("X-Forwarded-For", []) if message.headers else []
        peer = protocol.peer
        caller = self._gate.caller(peer, forwarded) if forwarded else peer
        loop = asyncio.get_running_loop()
        request = Request(message, payload, protocol, writer, task, loop, remote=caller)
        request.identifier = identifier()
        request.idle_hint = self._idle_hint
        request.is_forwarded = caller != peer
        protocol.begin(request, payload)
        return request

    async def _answer(self, request: Request) -> web.StreamResponse:
        """Answer a request; its log lines carry its identifier."""
        bind(request=request.identifier)  # for this request's task
        began = time.monotonic()
        worker = request.worker = asyncio.current_task()
        assert worker is not None, "a handler runs in a task"
        self._workers.add(worker)
        try:
            response = await self._dispatch(request)
        finally:
            request.worker = None
            self._workers.discard(worker)
            if request.kept_place is not None:
                self._gate.drop(request.kept_place)
        if _is_logged(logging.DEBUG):
            log.debug(
                "request answered",
                method=request.method,
                path=request.path,
                status=response.status,
                seconds=time.monotonic() - began,
            )
        return response

    async def _dispatch(self, request: Request) -> web.StreamResponse:
        """Refuse a request or pass it to the application.

        aiohttp treats versions 0.9 and 2.0 as 1.1.
        """
        if request.version not in {HttpVersion10, HttpVersion11}:
            return _refuse(request, 400, "the version is neither HTTP/1.0 nor HTTP/1.1")
        if sum(len(name) + len(value) for name, value in request.raw_headers) > MAX_HEAD:
            return _refuse(request, 431, _LONG_HEAD)
        if expected := request.headers.get("Expect"):
            if expected.lower() != "100-continue":
                return _refuse(request, 400, "the only supported expectation is 100-continue")
            # Sent once token, path and size are accepted: see `Request.invite_body`.
            request.awaits_continue = request.version == HttpVersion11
        if not request.is_forwarded:
            return await self._app.answer(request)
        caller = request.remote or ""
        if not self._gate.take(caller):
            return _refuse(request, 503, "too many requests from this address are in progress")
        try:
            return await self._app.answer(request)
        finally:
            self._gate.give(caller)


def _refuse(request: Request, status: int, details: str, path: str | None = None) -> Reply:
    """Refuse a request; further input is discarded."""
    _log_refusal(request.identifier, request.remote or "", status, details)
    message = _MESSAGES.get(status, "internal error")
    path = request.raw_path if path is None else path
    body = error_body(path, request.identifier, status=status, message=message, details=details)
    return Reply(json.dumps(body).encode(), status, is_last=True)


def _log_refusal(name: str, address: str, status: int, details: str) -> None:
    log.log(level_of(status), REFUSED, request=name, address=address, status=status, error=details)
