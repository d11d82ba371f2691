"""A connection of the HTTP API: its requests in turn, each in a task, with deadlines and caps.

aiohttp reads requests and formats responses. Its server is not used: it has no deadline for slow
clients, quotes rejected input in its errors, and shows neither what it has read nor what it waits
for.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, cast

from aiohttp import StreamReader, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import RawRequestMessage, StreamWriter

from controlplane.admission.byte_room import ByteRoom
from controlplane.http.errors import BrokenBodyError
from controlplane.http.gate import Gate
from controlplane.http.input import Input, UnreadableError
from controlplane.http.limits import Limits
from controlplane.http.messages import Reply, Request, identifier
from controlplane.http.output_watch import OutputWatch
from controlplane.http.refusals import refuse, refuse_unread
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

MAX_AHEAD = 32 * 1024  # Bytes in the bodies of requests that were sent before an answer


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """What the connections of a listener share."""

    limits: Limits
    gate: Gate
    responses: ByteRoom
    idle_hint: str  # Value of the header Keep-Alive, "" for none
    answer: Callable[[Request], Awaitable[web.StreamResponse]]
    connections: "set[Connection]" = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    """The requests in progress, also those whose clients have disconnected."""


class Connection(BaseProtocol):
    """A client's connection; after its last request it discards what else is sent."""

    def __init__(self, service: Service) -> None:
        self._events = asyncio.get_running_loop()
        super().__init__(self._events)
        self._service = service
        self._limits = service.limits
        self._context = copy_context()  # Of no request
        self._input = Input(self, self._events)
        self._output = OutputWatch(service.responses, service.limits.stall)
        self._task: asyncio.Task[None] | None = None  # Of the request in progress
        self._request: Request | None = None  # The request in progress
        self._is_handled = False  # Whether the handler of that request runs
        self._keeps_place = False  # Whether that handler keeps the place of a lost connection
        self._refusal: UnreadableError | None = None  # Sent after the other answers
        self._is_closing = False  # Whether no further request is served
        self._is_broken = False  # Whether all further input is discarded
        self._deadline: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._idle_since = 0.0
        self._lost = self._events.create_future()
        self._wire: asyncio.Transport
        self.peer = ""  # The address of the peer
        self.peername: Any = None
        self.sockname: Any = None
        self.ssl_context: ssl.SSLContext | None = None
        """The last three are read by aiohttp's requests."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the header deadline; pause writing while the kernel accepts no more.

        A high-water mark of 0 would stall asyncio's TLS with nothing left to send.
        """
        super().connection_made(transport)
        self._wire = cast("asyncio.Transport", transport)
        self._wire.set_write_buffer_limits(high=1)
        self.peername = transport.get_extra_info("peername")
        self.sockname = transport.get_extra_info("sockname")
        self.ssl_context = transport.get_extra_info("sslcontext")
        self.peer = str((self.peername or ("",))[0])
        self._service.connections.add(self)
        self._set_deadline(self._limits.header, self._wire.abort)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Cancel the deadlines, and the handler if it waits for the client.

        Another handler continues, and keeps the place of its connection until it ends.
        """
        self._service.connections.discard(self)
        self._is_closing = True
        self._is_broken = True
        self._disarm()
        if self._idle is not None:
            self._idle.cancel()
        self._output.end()
        self._lost.set_result(None)
        with suppress(BrokenBodyError):
            self._input.break_body("the client disconnected")
        if self._is_handled:
            assert self._request is not None
            assert self._task is not None
            self._keeps_place = True
            self._service.gate.keep(self.peer)
            if self._request.waits_for_client:
                self._task.cancel()
        super().connection_lost(exc)

    def finish(self) -> None:
        """Close the connection after the request in progress."""
        self._is_closing = True
        if self._task is None:
            self._wire.close()

    def data_received(self, data: bytes) -> None:
        """Read requests; after malformed input, discard the rest."""
        if self._is_broken:
            return
        try:
            has_arrived = self._input.feed(data)
        except UnreadableError as error:
            self._is_broken = True
            self._refusal = error
            if self._task is None:
                self._begin_next()
            return
        except BrokenBodyError:
            self._is_broken = True
            return
        if self._task is not None:
            if has_arrived and self._input.bytes_waiting > MAX_AHEAD:
                self._is_broken = True
                self.finish()
        elif has_arrived:
            self._begin_next()
        elif data and self._deadline is None:
            self._set_deadline(self._limits.header, self._wire.abort)

    def _begin_next(self) -> None:
        """Answer the next request or refusal; without any, wait for one."""
        request = self._input.take()
        if request is not None:
            message, body = request
            self._disarm()
            if not body.is_eof():
                self._set_deadline(self._limits.body, self._end_body)
            work = self._serve(message, body)
            context = self._context.copy()
            self._task = self._events.create_task(work, name="request", context=context)
            self._service.tasks.add(self._task)
            if self._input.refill():
                self.data_received(b"")
        elif self._refusal is not None:
            self._wire.write(refuse_unread(self._refusal, self.peer))
            self._end_writing()
            self._set_deadline(self._limits.linger, self._wire.abort)
        else:
            self._idle_since = self._events.time()
            if self._idle is None:
                self._idle = self._events.call_later(self._limits.idle, self._close_idle)

    async def _serve(self, message: RawRequestMessage, body: StreamReader) -> None:
        """Answer a request, then begin the next one."""
        keeps_alive = False
        try:
            request = self._request = self._made_request(message, body)
            response = await self._handled(request)
            await response.prepare(request)
            await response.write_eof()
            if isinstance(response, Reply) and response.is_last:
                await self._linger()
            elif body.is_eof() or await self._discarded(body, bool(response.keep_alive)):
                keeps_alive = bool(response.keep_alive)
        except ConnectionError:
            log.debug("the client disconnected before the end of its response")
        except Exception:
            log.exception("request failed at the edge")
        finally:
            self._end(keeps_alive=keeps_alive)

    def _made_request(self, message: RawRequestMessage, body: StreamReader) -> Request:
        """Make a request; `remote` is the caller, not the proxy."""
        forwarded = message.headers.getall("X-Forwarded-For", None)
        caller = self._service.gate.caller(self.peer, forwarded) if forwarded else self.peer
        request = Request(
            message,
            body,
            cast("web.RequestHandler", self),
            StreamWriter(self, self._events),
            cast("asyncio.Task[None]", self._task),
            self._events,
            remote=caller,
        )
        request.identifier = identifier()
        request.idle_hint = self._service.idle_hint
        request.is_forwarded = caller != self.peer
        return request

    async def _handled(self, request: Request) -> web.StreamResponse:
        """Call the handler; its request counts against the caps of connections until it ends."""
        self._is_handled = True
        try:
            return await self._service.answer(request)
        except Exception:
            if request.writer.output_size > 0:
                raise
            log.exception("request failed at the edge")
            return refuse(request, 500, "the server's log has the cause")
        finally:
            self._is_handled = False
            if self._keeps_place:
                self._service.gate.drop(self.peer)

    async def _discarded(self, body: StreamReader, keeps_alive: bool) -> bool:
        """Read the rest of a body that its handler has not read; return whether it has ended."""
        self._disarm()
        if not keeps_alive:
            self._end_writing()
        with suppress(TimeoutError, BrokenBodyError):
            async with asyncio.timeout(self._limits.unread):
                while not body.is_eof():
                    await body.readany()
        return body.is_eof()

    async def _linger(self) -> None:
        """Discard what the client sends until it disconnects."""
        self._is_broken = True
        self._end_writing()
        self._input.resume_body()
        await asyncio.wait({self._lost}, timeout=self._limits.linger)

    def _end_writing(self) -> None:
        with suppress(OSError):  # the client has disconnected already
            if self._wire.can_write_eof():
                self._wire.write_eof()

    def _end(self, *, keeps_alive: bool) -> None:
        """End a request; the next deadline starts with the next byte."""
        if self._task is not None:
            self._service.tasks.discard(self._task)
        self._task = None
        self._request = None
        self._disarm()
        if keeps_alive and not self._is_closing:
            self._begin_next()
        else:
            self._is_closing = True
            self._is_broken = True
            self._wire.close()

    def pause_reading(self) -> None:
        """Called by aiohttp: read no more until the handler has read of the body."""
        self._input.pause_body()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Called by aiohttp after each read of a body, and at its end."""
        self._input.resume_body()
        if resume_parser:
            self.data_received(b"")

    def pause_writing(self) -> None:
        """Watch a slow reader."""
        super().pause_writing()
        self._output.begin(self._wire, None if self._request is None else self._request.account)

    def resume_writing(self) -> None:
        """Stop watching."""
        self._output.end()
        super().resume_writing()

    def _close_idle(self) -> None:
        self._idle = None
        if self._task is not None:
            return
        left = self._idle_since + self._limits.idle - self._events.time()
        if left > 0:
            self._idle = self._events.call_later(left, self._close_idle)
        else:
            self._wire.close()

    def _end_body(self) -> None:
        self._input.break_late_body(f"the body was not received within {self._limits.body:g} s")

    def _set_deadline(self, seconds: float, end: Callable[[], None]) -> None:
        self._disarm()
        self._deadline = self._events.call_later(seconds, end)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
