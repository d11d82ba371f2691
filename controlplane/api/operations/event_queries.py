"""The query of calls that read events, and its filter."""

from typing import Annotated, ClassVar

from aiohttp import web
from pydantic import Field

from controlplane.api.operations.fields import Text
from controlplane.api.operations.queries import Flag, Query, Record, UpTo1000
from controlplane.domain.errors import InvalidRequestError, Violation
from controlplane.domain.events.filters import ACCOUNT_PATTERNS, ALL_PATTERNS, EventFilter
from controlplane.domain.events.positions import POSITION_PATTERN, Position
from tiltyard.runtime.settings import checked

LAST_EVENT_ID = "Last-Event-ID"
MOST_KINDS = 100

_NO_KIND = "must be a kind of event, or all of a topic, such as session.*"


def account_kind(text: str) -> None:
    """Raise ValueError unless an account can get events of a kind, or of a topic (`session.*`)."""
    if text not in ACCOUNT_PATTERNS:
        raise ValueError(_NO_KIND)


def _any_kind(text: str) -> None:
    if text not in ALL_PATTERNS:
        raise ValueError(_NO_KIND)


def _event_id(text: str) -> None:
    if Position.parse(text) is None:
        raise ValueError("must be the id of an event, or `after` of a page")


_Kind = Annotated[
    str,
    checked(account_kind),
    Field(json_schema_extra={"enum": list(ACCOUNT_PATTERNS)}),
]
_AnyKind = Annotated[
    str,
    checked(_any_kind),
    Field(json_schema_extra={"enum": list(ALL_PATTERNS)}),
]
EventId = Annotated[
    str,
    checked(_event_id),
    Field(json_schema_extra={"pattern": POSITION_PATTERN}),
]


class EventsQuery(Query):
    """The query of GET /event; what is absent does not filter.

    `kind` can be repeated, or list several with commas; events of players are chosen by it
    alone. `limit` is of pages, `follow` of streams.
    """

    several: ClassVar[frozenset[str]] = frozenset({"kind"})
    deep: ClassVar[frozenset[str]] = frozenset({"label"})

    kind: Annotated[list[_Kind], Field(max_length=MOST_KINDS)] | None = None
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


class AllEventsQuery(EventsQuery):
    """The query of GET /operator/event; without `account` it reads those of all accounts."""

    kind: Annotated[list[_AnyKind], Field(max_length=MOST_KINDS)] | None = None
    account: Text | None = None


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
