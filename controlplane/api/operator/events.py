"""GET /operator/event: what has happened to any account and in the fleet."""

from typing import Any

from aiohttp import web
from typing_extensions import TypedDict

from controlplane.api.operations.event_queries import AllEventsQuery
from controlplane.api.operations.events import EVENT_HEADERS, send_events
from controlplane.api.operations.operation import operation
from controlplane.http.event_source import FORMS
from controlplane.http.messages import Request


class ShownAnyEvent(TypedDict):
    """An event; `time` in milliseconds since the epoch, `data` depends on its type and version.

    `actor`: id of the token that was used, or `init`, `controlplane` or an agent's name.
    """

    id: str
    type: str
    version: int
    time: int
    account: str | None
    object: str
    actor: str
    address: str | None
    data: dict[str, Any]


class AnyEventPage(TypedDict):
    """Events in order. `after` requests the next page; `more`: there may be further events now."""

    events: list[ShownAnyEvent]
    after: str
    more: bool


@operation(media_types=FORMS, shape=AnyEventPage, reads=EVENT_HEADERS)
async def read_all_events(request: Request, query: AllEventsQuery) -> web.StreamResponse:
    """Read the events of all accounts and of the fleet, or follow them.

    The forms are those of `GET /event`.
    """
    return await send_events(request, query, query.filter(query.account, is_operator=True))
