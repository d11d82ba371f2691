"""Checks of what a peer sends against the bounds of the contract."""

from collections.abc import Callable, Sized
from functools import cache, partial
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from tiltyard.agent.bounds import BOUNDS, MAX_SECONDS, MOST_BYTES
from tiltyard.agent.v1 import agent_pb2

_NANOS = 10**9
_PACKAGE = f"{agent_pb2.DESCRIPTOR.package}."
_NUMBERS = {
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
}

Text = TypeVar("Text", str, bytes)
Items = TypeVar("Items", bound=Sized)
Span = TypeVar("Span", bound=Timestamp | Duration)


class OutOfBoundsError(ValueError):
    """A message has a value that no honest peer sends; the text names the field."""

    def __init__(self, field: str) -> None:
        super().__init__(f"{field} is out of bounds")
        self.field = field


def text(value: Text, field: str) -> Text:
    """Return a text or bytes that are within the bound of the field; raises OutOfBoundsError."""
    if len(value) > BOUNDS[field].most:
        raise OutOfBoundsError(field)
    return value


def number(value: int, field: str) -> int:
    """Return a number that is within the bounds of the field; raises OutOfBoundsError."""
    least, most, _ = BOUNDS[field]
    if not least <= value <= most:
        raise OutOfBoundsError(field)
    return value


def items(values: Items, field: str) -> Items:
    """Return a list or map with no more items than the field may have; raises OutOfBoundsError."""
    if len(values) > BOUNDS[field].most_items:
        raise OutOfBoundsError(field)
    return values


def span(value: Span, field: str) -> Span:
    """Return a point in time, since 1970, or a duration that is within its bounds.

    Raises:
        OutOfBoundsError: It is negative, not of this form, or after the year 9999.
    """
    if not (0 <= value.seconds <= MAX_SECONDS and 0 <= value.nanos < _NANOS):
        raise OutOfBoundsError(field)
    return value


def check(message: Message) -> None:
    """Check a message and those within it; fields without a value are not looked at.

    gRPC has bounded the bytes of the whole message, in both programs.

    Sessions are left to their reader, which reads each field by the functions above: there are
    several in each claim, and finding out which fields they have takes as long as reading them.

    Raises:
        OutOfBoundsError: A field is out of its bounds, or a message is too large.
    """
    kind = message.DESCRIPTOR.name
    if kind in MOST_BYTES and message.ByteSize() > MOST_BYTES[kind]:
        raise OutOfBoundsError(kind)
    for field, value in message.ListFields():
        check_field = _check_of(field)
        if check_field is not None:
            check_field(value)


@cache
def _check_of(field: FieldDescriptor) -> Callable[[Any], object] | None:
    """Return the check of the values of a field, which raises OutOfBoundsError, if it has one."""
    name = field.full_name.removeprefix(_PACKAGE)
    one = _check_of_one(field, name)
    if not field.is_repeated:
        return one

    def check_list(values: Any) -> None:
        items(values, name)
        if one is not None:
            for value in values:
                one(value)

    return check_list


def _check_of_one(field: FieldDescriptor, name: str) -> Callable[[Any], object] | None:
    """Return the check of one value of a field; maps and sessions have none."""
    kind = field.message_type
    if kind is None:
        if field.cpp_type in _NUMBERS:
            return partial(number, field=name)
        # Texts and bytes are of one type in C++; flags and enums are left.
        is_text = field.cpp_type == FieldDescriptor.CPPTYPE_STRING
        return partial(text, field=name) if is_text else None
    if kind in {Timestamp.DESCRIPTOR, Duration.DESCRIPTOR}:
        return partial(span, field=name)
    if kind.GetOptions().map_entry or kind is agent_pb2.Session.DESCRIPTOR:
        return None
    return check
