"""GET /event: what has happened to the objects of an account."""

from typing import Any

from aiohttp import web
from typing_extensions import TypedDict

from controlplane.api.operations.event_queries import EventsQuery
from controlplane.api.operations.events import EVENT_HEADERS, send_events
from controlplane.api.operations.operation import operation
from controlplane.api.operations.services import caller_of
from controlplane.http.event_source import FORMS
from controlplane.http.messages import Request


class ShownEvent(TypedDict):
    """An event; `time` in milliseconds since the epoch, `data` depends on its type and version.

    `actor`: id of the account's token that was used, or `operator` or `controlplane`.
    """

    id: str
    type: str
    version: int
    time: int
    account: str
    object: str
    actor: str
    data: dict[str, Any]


class EventPage(TypedDict):
    """Events in order. `after` requests the next page; `more`: there may be further events now."""

    events: list[ShownEvent]
    after: str
    more: bool


@operation(media_types=FORMS, shape=EventPage, reads=EVENT_HEADERS)
async def read_events(request: Request, query: EventsQuery) -> web.StreamResponse:
    """Read the events of the account, or follow them.

    As JSON, a page has the events after an id, by default the oldest ones. A stream follows those
    after an id, by default new ones; with `follow=false` it has the events so far, and ends.
    """
    return await send_events(request, query, query.filter(caller_of(request).account))
