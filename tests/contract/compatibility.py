"""What a change of the contract would break, in the manner of buf's FILE and WIRE_JSON rules.

Compared are the descriptors of a released contract and today's. What was added breaks nothing;
what somebody may send or call keeps its name, its number, its type and its place. Pure.
"""

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorSet,
)

Facts = Iterator[tuple[str, Any]]


def breaks(released: FileDescriptorSet, today: FileDescriptorSet) -> list[str]:
    """Name what a released contract has and today's has not, or not in the same way.

    A field is named by its message and its number, and so is a value of an enum.
    """
    now = dict(_facts(today))
    return [
        name
        for name, fact in _facts(released)
        if now.get(name) != fact and not _is_given_up(name, fact, now)
    ]


def _is_given_up(name: str, fact: Any, now: dict[str, Any]) -> bool:
    """Return whether neither the number nor the name of what is gone can be used again."""
    kind, _, number = name.rpartition(" ")
    reserved = {f"{kind} reserves {number}", f"{kind} reserves {fact[0]}"}
    return name not in now and reserved <= now.keys()


def _facts(files: FileDescriptorSet) -> Facts:
    for file in files.file:
        yield file.name, file.package
        for message in file.message_type:
            yield from _message(message, message.name)
        for enum in file.enum_type:
            yield from _enum(enum, enum.name)
        for service in file.service:
            yield service.name, "service"
            for method in service.method:
                streams = (method.client_streaming, method.server_streaming)
                yield (
                    f"{service.name}.{method.name}",
                    (method.input_type, method.output_type, *streams),
                )


def _message(message: DescriptorProto, name: str) -> Facts:
    yield name, "message"
    for field in message.field:
        yield f"{name} {field.number}", _field(field, message)
    for nested in message.nested_type:
        yield from _message(nested, f"{name}.{nested.name}")
    for enum in message.enum_type:
        yield from _enum(enum, f"{name}.{enum.name}")
    # The end of a message's range is not in it, and that of an enum's is.
    yield from _reserved(message, name, 0)


def _field(field: FieldDescriptorProto, message: DescriptorProto) -> tuple[Any, ...]:
    """All that a reader or writer of a field has to know; first, its name."""
    is_member = field.HasField("oneof_index") and not field.proto3_optional
    oneof = message.oneof_decl[field.oneof_index].name if is_member else ""
    kind = (field.type, field.type_name, field.label, field.proto3_optional)
    return (field.name, field.json_name, *kind, oneof)


def _enum(enum: EnumDescriptorProto, name: str) -> Facts:
    yield name, "enum"
    for value in enum.value:
        yield f"{name} {value.number}", (value.name,)
    yield from _reserved(enum, name, 1)


def _reserved(kind: DescriptorProto | EnumDescriptorProto, name: str, last: int) -> Facts:
    for reserved in kind.reserved_name:
        yield f"{name} reserves {reserved}", "name"
    for each in kind.reserved_range:
        for number in range(each.start, each.end + last):
            yield f"{name} reserves {number}", "number"
