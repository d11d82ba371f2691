"""Events in the form that a client prefers: a page of JSON, or a stream."""

from aiohttp import web

from controlplane.api.operations.event_queries import LAST_EVENT_ID, EventsQuery, asked_position
from controlplane.api.operations.event_streams import StreamRequest, shown_to, stream_events
from controlplane.api.operations.services import services_of
from controlplane.domain.errors import TooManyStreamsError
from controlplane.domain.events.filters import EventFilter
from controlplane.domain.events.positions import EventsGoneError, Position
from controlplane.domain.events.stored import StoredEvent
from controlplane.events.event_log import EventLog
from controlplane.http.event_source import form_of
from controlplane.http.messages import JSON, Reply, Request

READS = 10  # Reads of the log for one page, which may find fewer events than its limit

EVENT_HEADERS = {
    "Accept": "`text/event-stream` and `application/x-ndjson` follow the log.",
    LAST_EVENT_ID: "As `after`, which it overrides.",
}
"""Headers of the request that change the response."""


async def send_events(
    request: Request, query: EventsQuery, wanted: EventFilter
) -> web.StreamResponse:
    """Send the events that match a filter.

    Raises:
        EventsGoneError: The log has a gap after the position of the reader.
        TooManyStreamsError: Too many streams of the token or the account are open.
    """
    services = services_of(request)
    after = asked_position(request, query)
    form = form_of(request)
    try:
        if form != JSON:
            asked = StreamRequest(form, wanted, after=after, follow=query.follow)
            return await stream_events(request, asked)
        return Reply(await _page(services.event_log, wanted, after, query.limit))
    except EventsGoneError:
        services.event_metrics.gaps.inc()
        raise
    except TooManyStreamsError:
        services.event_metrics.refused.inc()
        raise


async def _page(log: EventLog, wanted: EventFilter, after: Position | None, limit: int) -> bytes:
    """Read a page after a position, by default from the oldest event, and encode it."""
    events: list[StoredEvent] = []
    if after is not None:
        await log.check(wanted, after)
    position = await log.first(wanted) if after is None else after
    more = True
    for _ in range(READS):
        batch = await log.read(wanted, position, limit - len(events))
        events += batch.events
        position = batch.after
        more = batch.more
        if not more or len(events) == limit:
            break
    shown = ", ".join(map(shown_to(wanted), events))
    rest = f'"after": "{position}", "more": {"true" if more else "false"}'
    return f'{{"events": [{shown}], {rest}}}'.encode()
