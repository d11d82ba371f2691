"""What a change of the contract would break, in the manner of buf's FILE and WIRE_JSON rules.

Compared are the descriptors of a released contract and today's. What was added breaks nothing;
what somebody may send or call keeps its name, its number, its type and its place. Pure.
"""

from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)


def breaks(released: FileDescriptorSet, today: FileDescriptorSet) -> list[str]:
    """What today's contract breaks of a released one, a line each."""
    now = {file.name: file for file in today.file}
    found: list[str] = []
    for file in released.file:
        found += _file(file, now[file.name]) if file.name in now else [f"{file.name} is gone"]
    return found


def _file(old: FileDescriptorProto, new: FileDescriptorProto) -> Iterator[str]:
    if old.package != new.package:
        yield f"the package {old.package} is {new.package}"
    yield from _messages(old, new)
    yield from _enums(old, new)
    services = {service.name: service for service in new.service}
    for service in old.service:
        if service.name in services:
            yield from _service(service, services[service.name])
        else:
            yield f"{service.name} is gone"


def _messages(
    old: FileDescriptorProto | DescriptorProto, new: FileDescriptorProto | DescriptorProto
) -> Iterator[str]:
    """Of a file, or those that a message has within it."""
    was = old.message_type if isinstance(old, FileDescriptorProto) else old.nested_type
    now = new.message_type if isinstance(new, FileDescriptorProto) else new.nested_type
    messages = {message.name: message for message in now}
    for message in was:
        if message.name in messages:
            yield from _message(message, messages[message.name])
        else:
            yield f"{message.name} is gone"


def _message(old: DescriptorProto, new: DescriptorProto) -> Iterator[str]:
    yield from _messages(old, new)
    yield from _enums(old, new)
    fields = {field.number: field for field in new.field}
    for field in old.field:
        where = f"{old.name}.{field.name}"
        if field.number in fields:
            was, now = _facts(field, old), _facts(fields[field.number], new)
            yield from (
                f"{where}: {fact} was {was[fact]} and is {now[fact]}"
                for fact in was
                if was[fact] != now[fact]
            )
        elif not _is_reserved(new, field.number, field.name):
            yield f"{where} is gone: its number and its name are not reserved"
    yield from _freed(old, new)


def _facts(field: FieldDescriptorProto, message: DescriptorProto) -> dict[str, str]:
    """All that a reader or writer of a field has to know."""
    is_member = field.HasField("oneof_index") and not field.proto3_optional
    return {
        "name": field.name,
        "json name": field.json_name,
        "type": FieldDescriptorProto.Type.Name(field.type) + field.type_name,
        "label": FieldDescriptorProto.Label.Name(field.label),
        "presence": "explicit" if field.proto3_optional else "implicit",
        "oneof": message.oneof_decl[field.oneof_index].name if is_member else "none",
    }


def _is_reserved(kind: DescriptorProto | EnumDescriptorProto, number: int, name: str) -> bool:
    # The end of a message's range is not in it, and that of an enum's is.
    last = 0 if isinstance(kind, EnumDescriptorProto) else 1
    ranges = ((each.start, each.end - last) for each in kind.reserved_range)
    return name in kind.reserved_name and any(low <= number <= high for low, high in ranges)


def _freed(
    old: DescriptorProto | EnumDescriptorProto, new: DescriptorProto | EnumDescriptorProto
) -> Iterator[str]:
    """What was reserved once stays so."""
    yield from (
        f"{old.name}: the name {name} is not reserved any more"
        for name in old.reserved_name
        if name not in new.reserved_name
    )
    kept = [(each.start, each.end) for each in new.reserved_range]
    yield from (
        f"{old.name}: the numbers {each.start} to {each.end} are not reserved any more"
        for each in old.reserved_range
        if not any(low <= each.start and each.end <= high for low, high in kept)
    )


def _enums(
    old: FileDescriptorProto | DescriptorProto, new: FileDescriptorProto | DescriptorProto
) -> Iterator[str]:
    enums = {enum.name: enum for enum in new.enum_type}
    for enum in old.enum_type:
        if enum.name in enums:
            yield from _enum(enum, enums[enum.name])
        else:
            yield f"{enum.name} is gone"


def _enum(old: EnumDescriptorProto, new: EnumDescriptorProto) -> Iterator[str]:
    names = {value.number: value.name for value in new.value}
    for value in old.value:
        now = names.get(value.number)
        if now is None and not _is_reserved(new, value.number, value.name):
            yield f"{value.name} is gone: its number and its name are not reserved"
        elif now not in {None, value.name}:
            yield f"{value.name} is {now}"
    yield from _freed(old, new)


def _service(old: ServiceDescriptorProto, new: ServiceDescriptorProto) -> Iterator[str]:
    methods = {method.name: method for method in new.method}
    for method in old.method:
        if method.name not in methods:
            yield f"{old.name}.{method.name} is gone"
        elif _shape(method) != _shape(methods[method.name]):
            yield (
                f"{old.name}.{method.name} was {_shape(method)}"
                f" and is {_shape(methods[method.name])}"
            )


def _shape(method: MethodDescriptorProto) -> str:
    asks = "stream " * method.client_streaming + method.input_type
    return f"{asks} → {'stream ' * method.server_streaming}{method.output_type}"
