"""Events as a stream that follows the log: as server-sent events, or a line of JSON for each.

Both forms have the same objects. Those of topic `stream` report on the stream itself: it has begun
(`stream.open`), goes on (`stream.position`), ends (`stream.end`), or cannot go on without a gap
(`stream.gap`). Each has the id after which a reader continues. Server-sent events allow an id
alone, but some readers ignore it: eventsource 3.0.0 to 5.0.0 from npm, for instance.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter

from aiohttp import web

from controlplane.admission.request_slots import release_request_slot
from controlplane.api.operations.services import SERVICES, Services, caller_of, services_of
from controlplane.domain.access.callers import Caller
from controlplane.domain.errors import StoppingError, StoreError, UnauthorizedError
from controlplane.domain.events.filters import EventFilter
from controlplane.domain.events.positions import EventsGoneError, Position
from controlplane.domain.events.stored import StoredEvent
from controlplane.http.errors import break_off
from controlplane.http.event_source import END, EVENT_STREAM, GAP, frame, retry_frame
from controlplane.http.messages import Request
from controlplane.storage.tables.accounting.event_reading import EventBatch
from tiltyard.runtime.clock import from_ms
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

OPEN = "stream.open"
POSITION = "stream.position"
QUIET = 15.0  # Seconds without an event after which a stream sends its position
AT_ONCE = 200  # Events that are read at a time
CHUNK = 64 * 1024  # Bytes after which events are sent
TAKE_WAIT = 30.0  # Seconds in which a reader must take a chunk
END_WAIT = 2.0  # Seconds in which readers must take the end of their streams at a shutdown


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """The options of a request for a stream of events.

    Without `after`, a stream that follows the log begins with the next event, and a stream that
    does not follow it with the oldest event.
    """

    form: str
    wanted: EventFilter
    after: Position | None
    follow: bool = True


def shown_to(wanted: EventFilter) -> Callable[[StoredEvent], str]:
    """Return the function that formats an event for a reader."""
    return attrgetter("for_operators" if wanted.is_operator else "for_account")


async def end_event_streams(app: web.Application) -> None:
    """End all streams of events with the hint to connect again; a shutdown hook."""
    services = app[SERVICES]
    await services.event_log.stop_waiting()
    with suppress(TimeoutError):
        async with asyncio.timeout(END_WAIT):
            await services.event_slots.all_released()


async def stream_events(request: Request, asked: StreamRequest) -> web.StreamResponse:
    """Send events until the reader, its token or the control plane ends the stream.

    Raises:
        EventsGoneError: Before the first byte, as other errors.
        TooManyStreamsError: Too many streams of the token or the account are open.
        StoppingError: The control plane is shutting down.
    """
    services = services_of(request)
    caller = caller_of(request)
    stream = _Stream(services, request, asked)
    release_request_slot()
    if services.event_log.is_stopping:
        raise StoppingError("streams of events end")
    with (
        services.event_slots.held(caller.account, caller.token_id),
        request.ended_by_disconnect(),
        stream.counted(),
    ):
        await stream.serve(caller)
    return stream.response


class _Stream:
    """One stream: what its reader has asked for, and how far it has come."""

    def __init__(self, services: Services, request: Request, asked: StreamRequest) -> None:
        self._log = services.event_log
        self._open_streams = services.streams
        self._clock = services.streams.clock
        self._metrics = services.event_metrics
        self._request = request
        self._asked = asked
        self._is_sse = asked.form == EVENT_STREAM
        self._shown = shown_to(asked.wanted)
        self._after = Position(0, 0)  # What was sent so far
        self._is_close = False  # Whether all events were sent at one time
        self._quiet_from = 0.0  # The loop's time after which the reader is sent its position
        self._why = "client"
        self._sent = services.event_metrics.sent.labels(self._form)
        headers = {"Content-Type": asked.form, "X-Accel-Buffering": "no"}
        self.response = web.StreamResponse(headers=headers)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the stream while it is open, and its end."""
        form = self._form
        self._metrics.streams.labels(form).inc()
        try:
            yield
        finally:
            self._metrics.streams.labels(form).dec()
            self._metrics.ended.labels(self._why).inc()

    async def serve(self, caller: Caller) -> None:
        """Send the whole response. Errors before its first byte are raised."""
        try:
            async with self._open_streams.opened(caller):
                await self._send()
        except ConnectionError:
            raise
        except Exception as error:
            self._why = "failure"
            if not self.response.prepared:
                raise
            await self._end_after(error)

    @property
    def _form(self) -> str:
        return "sse" if self._is_sse else "ndjson"

    async def _send(self) -> None:
        asked = self._asked
        if asked.after is not None:
            await self._log.check(asked.wanted, asked.after)
        self._after = asked.after or await self._default_position()
        batch = await self._log.read(asked.wanted, self._after, AT_ONCE)
        await self.response.prepare(self._request)
        if self._request.method == "HEAD":
            return
        await self._write(self._report(OPEN, self._after))
        why = await self._follow(batch)
        await self._end(why)

    async def _default_position(self) -> Position:
        if self._asked.follow:
            return await self._log.newest()
        return await self._log.first(self._asked.wanted)

    async def _follow(self, batch: EventBatch) -> str:
        """Send events, beginning with a batch; return why there are no more."""
        while True:
            await self._write_events(batch.events)
            self._after = batch.after
            self._is_close = self._is_close or not batch.more
            if self._log.is_stopping:
                return "shutdown"
            if batch.more:
                await asyncio.sleep(0)
            elif not self._asked.follow:
                return "newest"
            else:
                await self._wait()
            batch = await self._log.read(self._asked.wanted, self._after, AT_ONCE)

    async def _wait(self) -> None:
        """Wait for an event that the reader may want, or until it is to be sent its position."""
        now = asyncio.get_running_loop().time
        left = self._quiet_from - now()
        if left > 0:
            account = self._asked.wanted.account
            self._after = await self._log.changed(account, self._after, left)
        if now() >= self._quiet_from:
            comment = ": quiet\n" if self._is_sse else ""
            await self._write(comment + self._report(POSITION, self._after))

    async def _write_events(self, events: Sequence[StoredEvent]) -> None:
        text: list[str] = []
        size = 0
        for event in events:
            shown = self._shown(event)
            if self._is_sse:
                shown = frame(event.kind, shown, str(event.position))
            else:
                shown += "\n"
            text.append(shown)
            size += len(shown)
            if size >= CHUNK:
                await self._write("".join(text))
                text.clear()
                size = 0
        if text:
            await self._write("".join(text))
        if events:
            self._sent.inc(len(events))
            if self._is_close:
                age = self._clock.time() - from_ms(events[-1].row.time_ms)
                self._metrics.sent_after.observe(max(0.0, age))

    async def _write(self, text: str) -> None:
        """Send a part, and wait until the reader takes it. A slow reader is disconnected."""
        loop = asyncio.get_running_loop()
        # Nearly all parts are taken at once: `asyncio.timeout` costs more.
        deadline = loop.call_later(TAKE_WAIT, self._close_as_slow)
        try:
            await self.response.write(text.encode())
        finally:
            deadline.cancel()
        self._quiet_from = loop.time() + QUIET

    def _close_as_slow(self) -> None:
        self._why = "slow"
        log.info("stream of events closed: its reader is too slow")
        if self._request.transport is not None:
            self._request.transport.abort()

    async def _end_after(self, error: Exception) -> None:
        """End a response that has begun."""
        match error:
            case EventsGoneError():
                await self._end_with_gap(error)
            case UnauthorizedError():
                await self._end("token")
            case StoreError():
                log.error("the database failed", exc_info=error)
                await self._end("failure")
            case _:
                break_off(self._request, "a stream of events")

    async def _end_with_gap(self, error: EventsGoneError) -> None:
        self._metrics.gaps.inc()
        oldest = None if error.oldest is None else str(error.oldest)
        await self._end("gap", self._report(GAP, error.resume, oldest=oldest))

    async def _end(self, why: str, report: str = "") -> None:
        self._why = why
        text = report or self._report(END, self._after, why=why)
        await self._write(retry_frame() + text if self._is_sse else text)
        await self.response.write_eof()

    def _report(self, kind: str, position: Position, **more: str | None) -> str:
        """Format what the stream says of itself."""
        data = json.dumps({"id": str(position), "type": kind, **more})
        return frame(kind, data, str(position)) if self._is_sse else f"{data}\n"
