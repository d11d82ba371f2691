"""The query of calls that read events, and its filter."""

from typing import Annotated, ClassVar

from aiohttp import web
from pydantic import Field

from controlplane.api.operations.fields import Text
from controlplane.api.operations.queries import Flag, Query, Record, UpTo1000
from controlplane.domain.errors import InvalidRequestError, Violation
from controlplane.domain.events.filters import EventFilter, is_kind_pattern
from controlplane.domain.events.kinds import KINDS
from controlplane.domain.events.positions import Position
from tiltyard.runtime.settings import checked

LAST_EVENT_ID = "Last-Event-ID"
MOST_KINDS = 100


def _kind(text: str) -> None:
    if not is_kind_pattern(text):
        raise ValueError("must be a kind of event, or all of a topic, such as session.*")


def _event_id(text: str) -> None:
    if Position.parse(text) is None:
        raise ValueError("must be the id of an event, or `after` of a page")


_TOPICS = sorted({kind.partition(".")[0] for kind in KINDS})

Kind = Annotated[
    str,
    checked(_kind),
    Field(json_schema_extra={"enum": [*KINDS, *(f"{topic}.*" for topic in _TOPICS)]}),
]
EventId = Annotated[
    str,
    checked(_event_id),
    Field(json_schema_extra={"pattern": "^[0-9]{1,18}-[0-9]{1,18}$"}),
]


class EventsQuery(Query):
    """The query of GET /event; what is absent does not filter.

    `kind` can be repeated, or list several with commas; events of players are chosen by it
    alone. `limit` is of pages, `follow` of streams.
    """

    several: ClassVar[frozenset[str]] = frozenset({"kind"})
    deep: ClassVar[frozenset[str]] = frozenset({"label"})

    kind: Annotated[list[Kind], Field(max_length=MOST_KINDS)] | None = None
    image: Text | None = None
    location: Text | None = None
    session: Text | None = None
    label: Record | None = None
    after: EventId | None = None
    limit: UpTo1000 = 100
    follow: Flag = True

    def filter(self, account: str | None, *, is_operator: bool = False) -> EventFilter:
        """Return the filter of a reader."""
        return EventFilter(
            account,
            is_operator=is_operator,
            kinds=tuple(self.kind or ()),
            image=self.image,
            location=self.location,
            session=self.session,
            labels=self.label or {},
        )


def asked_position(request: web.Request, query: EventsQuery) -> Position | None:
    """Return the position after which a reader wants events; None if it names none.

    An EventSource that connects again sends the header, and the query of its first request.

    Raises:
        InvalidRequestError: The header is not the id of an event.
    """
    text = request.headers.get(LAST_EVENT_ID)
    if not text:
        return None if query.after is None else Position.parse(query.after)
    found = Position.parse(text)
    if found is None:
        why = "must be the id of an event"
        raise InvalidRequestError((Violation(LAST_EVENT_ID, why),))
    return found
