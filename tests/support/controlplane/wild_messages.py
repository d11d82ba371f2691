"""Messages of the contract that are valid by their types and wild by their values."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from tiltyard.agent.bounds import BOUNDS, MAX_SECONDS
from tiltyard.agent.v1 import agent_pb2

BEYOND = 0.02  # Share of values that are out of their bounds, in messages that have such values
MESSAGES_BEYOND = 0.2  # Share of such messages
SET = 0.7  # Share of the fields of a message that have a value
FEW = (0, 1, 1, 2, 5)
MANY = 20_000  # Items of a list that has too many of them, or as many as a test can make
SOME_TEXTS = ("", "x", "\0", "a\nb\x1b[31m", "\u202egnp", "/../..", "' OR 1=1 --", "ü" * 40)
_FEWEST_BITS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_SPANS = (Timestamp.DESCRIPTOR, Duration.DESCRIPTOR)


class WildMessages:
    """Makes random messages.

    `texts` and `secrets` return names, ids and proofs that mean something to the reader.
    """

    def __init__(
        self,
        seed: int,
        texts: Callable[[], Sequence[str]],
        secrets: Callable[[], Sequence[bytes]],
    ) -> None:
        self._random = Random(seed)
        self._texts = texts
        self._secrets = secrets
        self._beyond = 0.0

    def fill(self, message: Message) -> None:
        """Give some fields of a message random values; the others keep theirs."""
        is_beyond = self._random.random() < MESSAGES_BEYOND
        self._beyond = BEYOND if is_beyond else 0.0
        self._fill(message)

    def _fill(self, message: Any) -> None:
        kind: Descriptor = message.DESCRIPTOR
        for field in kind.fields:
            if self._random.random() > SET:
                continue
            if field.is_repeated:
                self._fill_repeated(message, field)
            elif field.message_type is not None:
                self._fill_message(getattr(message, field.name), field)
            else:
                setattr(message, field.name, self._value(field))

    def _fill_repeated(self, message: Any, field: FieldDescriptor) -> None:
        values = getattr(message, field.name)
        kind = field.message_type
        bound = BOUNDS[_name_of(field)]
        count = min(self._random.choice(FEW), bound.most_items)
        if self._is_beyond():
            count = min(bound.most_items + 1, MANY)
        if kind is not None and kind.GetOptions().map_entry:
            for _ in range(count):
                values[self._text(64)] = self._text(256)
        elif kind is not None:
            for _ in range(count):
                self._fill_message(values.add(), field)
        else:
            values.extend(self._value(field) for _ in range(count))

    def _fill_message(self, message: Any, field: FieldDescriptor) -> None:
        if field.message_type not in _SPANS:
            self._fill(message)
            return
        message.seconds = self._random.choice((0, 1, 1_700_000_000, MAX_SECONDS))
        if self._is_beyond():
            message.seconds = self._random.choice((-1, -(2**62), MAX_SECONDS + 1, 2**62))

    def _value(self, field: FieldDescriptor) -> object:
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return self._random.random() < 0.5
        if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
            assert field.enum_type is not None
            values = field.enum_type.values
            # 0 stands for a value of a later version.
            return self._random.choice(values if self._is_beyond() else values[1:]).number
        bound = BOUNDS[_name_of(field)]
        if field.type == FieldDescriptor.TYPE_BYTES:
            own = self._text(bound.most).encode()
            return self._random.choice((own, *self._secrets()))
        if field.type == FieldDescriptor.TYPE_STRING:
            return self._text(bound.most)
        if self._is_beyond():
            return self._random.choice(_FEWEST_BITS[field.cpp_type])
        near = self._random.choice((0, 1, self._random.randrange(1000), bound.least, bound.most))
        return min(max(near, bound.least), bound.most)

    def _text(self, most: int) -> str:
        if self._is_beyond():
            return "x" * (most + 1)
        longest = "y" * min(most, 2048)
        choice = self._random.choice((*SOME_TEXTS, *self._texts(), longest))
        return choice[:most]

    def _is_beyond(self) -> bool:
        return self._random.random() < self._beyond


def _name_of(field: FieldDescriptor) -> str:
    return field.full_name.removeprefix(f"{agent_pb2.DESCRIPTOR.package}.")
