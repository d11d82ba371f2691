"""The base class of all events.

A transaction appends the events of its changes with `Database.append`; nothing else writes the
log. A released kind keeps its name and its fields; a field that gets another meaning needs a new
`version`.
"""

import json
from dataclasses import Field, fields, is_dataclass
from enum import Enum, StrEnum, auto
from typing import Any, ClassVar

from controlplane.domain.access.audit import Actor
from tiltyard.records import record

JSON_NAME = "name"
"""The key of a field's metadata with its name in JSON, if that is another one."""


class Audience(StrEnum):
    """The readers that an event is meant for."""

    ACCOUNT = auto()  # The account that the event names
    OPERATOR = auto()
    BOTH = auto()


class Retention(Enum):
    """The classes of events by which their retention differs.

    An account can cause any number of events; beyond a number, its oldest events are removed. Each
    class has its own number: events of sessions do not push out those of the use of tokens.
    """

    AGE = auto()  # What operators did, by age alone
    ACTS = auto()  # What callers did, by age and number
    SESSIONS = auto()  # What happened to sessions, by age and number
    PLAYERS = auto()  # Ids of players, personal data: by a shorter age of their own, and number


@record(frozen=True, slots=True)
class Event:
    """A change. The fields of each kind are its data.

    `account` is empty if the change concerns none. `time` is when the control plane wrote it, in
    seconds since the epoch.
    """

    kind: ClassVar[str]
    """`topic.deed`, unique among all kinds."""
    audience: ClassVar[Audience]
    retention: ClassVar[Retention]
    object_type: ClassVar[str]
    """The kind of object that `subject` names, in words for the documentation."""
    version: ClassVar[int] = 1
    """The format of the data."""

    account: str
    subject: str
    actor: Actor
    time: float

    def data(self) -> dict[str, Any]:
        """Return the fields of this kind by their names in JSON."""
        return {key: _plain(getattr(self, name)) for name, key in data_keys(type(self))}

    def data_json(self) -> str:
        """Return the data as the JSON text of an object.

        Readers look for fields in the text: each is as `json_field` formats it.
        """
        data = self.data()
        return json.dumps(data) if data else "{}"


def json_field(name: str, value: str) -> str:
    """Format a field as it is in the JSON of data."""
    return json.dumps({name: value})[1:-1]


_data_keys: dict[type[Event], tuple[tuple[str, str], ...]] = {}


def data_keys(kind: type[Event]) -> tuple[tuple[str, str], ...]:
    """Return the names of the fields of a kind, each with its name in JSON."""
    known = _data_keys.get(kind)
    if known is None:
        own = fields(kind)[len(fields(Event)) :]
        known = _data_keys[kind] = tuple((each.name, _json_name(each)) for each in own)
    return known


def _json_name(of: "Field[Any]") -> str:
    """Return a field's name in JSON: `nodePool` for `node_pool`, unless it has one of its own."""
    own: str | None = of.metadata.get(JSON_NAME)
    return own or camel_case(of.name)


def camel_case(name: str) -> str:
    """Return `nodePool` for `node_pool`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


_PLAIN = frozenset({str, int, bool, float, type(None), dict, list, tuple})


def _plain(value: Any) -> Any:
    if type(value) in _PLAIN or not is_dataclass(value):
        return value
    return {_json_name(each): getattr(value, each.name) for each in fields(value)}


@record(frozen=True, slots=True)
class OperatorEvent(Event):
    """An event for operators alone."""

    audience = Audience.OPERATOR
    retention = Retention.AGE


@record(frozen=True, slots=True)
class CallerEvent(Event):
    """An event of what callers do, for their account and operators."""

    audience = Audience.BOTH
    retention = Retention.ACTS
