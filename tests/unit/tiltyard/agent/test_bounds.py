"""Every field of the contract has bounds, and the program that reads a message enforces them."""

from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

from controlplane.agent_rpc.wire import session_in
from tiltyard.agent.bounds import BOUNDS, MAX_SECONDS, MOST_BYTES
from tiltyard.agent.checked import OutOfBoundsError, check
from tiltyard.agent.v1 import agent_pb2
from tiltyard.agent.wire import PORTION_ITEMS

SPANS = (Timestamp.DESCRIPTOR, Duration.DESCRIPTOR)
TEXTS = FieldDescriptor.CPPTYPE_STRING  # also of bytes
UNBOUNDED = {FieldDescriptor.CPPTYPE_BOOL, FieldDescriptor.CPPTYPE_ENUM}
UNREAD = {
    "Session.exit_code",  # of any 32 bits
    "Session.expire_time",
    "Session.pid",
    "Session.restart_count",
    "Session.start_time",
}
"""Fields of sessions that the control plane does not read, or reads whatever they are."""


def messages() -> dict[str, Descriptor]:
    """Return all messages that calls of the service can carry, by name."""
    service = agent_pb2.DESCRIPTOR.services_by_name["AgentService"]
    found: dict[str, Descriptor] = {}
    pending: list[Descriptor | None] = []
    for call in service.methods:
        pending += [call.input_type, call.output_type]
    while pending:
        kind = pending.pop()
        if kind is None or kind.name in found or kind in SPANS:
            continue
        found[kind.name] = kind
        pending += [field.message_type for field in kind.fields]
    return {name: kind for name, kind in found.items() if not kind.GetOptions().map_entry}


def fields() -> dict[str, FieldDescriptor]:
    return {
        f"{name}.{field.name}": field for name, kind in messages().items() for field in kind.fields
    }


def needs_a_bound(field: FieldDescriptor) -> bool:
    if field.is_repeated:
        return True
    return field.message_type is None and field.cpp_type not in UNBOUNDED


def test_every_field_has_a_bound_and_no_other_has() -> None:
    assert set(BOUNDS) == {name for name, field in fields().items() if needs_a_bound(field)}


def test_whatever_has_a_map_is_bounded_in_bytes() -> None:
    with_map = {
        name.partition(".")[0]
        for name, field in fields().items()
        if field.message_type and field.message_type.GetOptions().map_entry
    }
    assert with_map <= set(MOST_BYTES)


def made(name: str) -> Message:
    return GetMessageClass(messages()[name])()


def with_items(name: str, count: int) -> Message:
    """Return a message whose list or map has this many of the smallest items."""
    message = made(name.partition(".")[0])
    field = fields()[name]
    values = getattr(message, field.name)
    if field.message_type is None:
        values.extend(["" if field.cpp_type == TEXTS else 0] * count)
    elif field.message_type.GetOptions().map_entry:
        values.update({str(number): "" for number in range(count)})
    else:
        for _ in range(count):
            values.add()
    return message


def with_value(name: str, value: object) -> Message:
    message = made(name.partition(".")[0])
    field = fields()[name]
    if field.is_repeated:
        getattr(message, field.name).append(value)
    else:
        setattr(message, field.name, value)
    return message


def limits_of(field: FieldDescriptor) -> tuple[int, int]:
    """Return the least and the most that the type of a number can carry."""
    signed = field.cpp_type in {FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64}
    small = field.cpp_type in {FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32}
    bits = 32 if small else 64
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)


def values_at_and_beyond(name: str) -> Iterator[tuple[object, bool]]:
    """Yield values of a text or number, and whether each is within its bounds."""
    field = fields()[name]
    bound = BOUNDS[name]
    if field.cpp_type == TEXTS:
        unit = b"x" if field.type == FieldDescriptor.TYPE_BYTES else "x"
        yield unit * bound.most, True
        yield unit * (bound.most + 1), False
        return
    least, most = limits_of(field)
    yield bound.most, True
    yield bound.least, True
    if bound.most < most:
        yield bound.most + 1, False
        yield most, False
    if bound.least > least:
        yield bound.least - 1, False
        yield least, False


def is_accepted(message: Message) -> bool:
    try:
        read(message)
    except OutOfBoundsError:
        return False
    return True


def read(message: Message) -> None:
    """Read a message as the program does that gets it."""
    if isinstance(message, agent_pb2.Session):
        message.format = 1
        message.state = agent_pb2.STATE_RUNNING
        session_in(message)
    else:
        check(message)


SCALARS = sorted(
    name
    for name in BOUNDS
    if fields()[name].message_type is None
    and fields()[name].cpp_type not in UNBOUNDED
    and name not in UNREAD
)
LISTS = sorted(name for name in BOUNDS if fields()[name].is_repeated)
TIMES = sorted(
    name for name, field in fields().items() if field.message_type in SPANS and name not in UNREAD
)


@pytest.mark.parametrize("name", [name for name in SCALARS if name != "Session.format"])
def test_value_is_accepted_up_to_its_bounds_and_refused_beyond(name: str) -> None:
    for value, is_within in values_at_and_beyond(name):
        assert is_accepted(with_value(name, value)) == is_within, f"{value!r:.40}"


@pytest.mark.parametrize("name", LISTS)
def test_list_is_accepted_up_to_its_length_and_refused_beyond(name: str) -> None:
    most = BOUNDS[name].most_items
    if name != "Session.ports":  # a port without a protocol is refused for that
        assert is_accepted(with_items(name, most))
    assert not is_accepted(with_items(name, most + 1))


@pytest.mark.parametrize(
    "name",
    [
        "SessionBatch.sessions",
        "ClaimSessionsRequest.claims",
        "ClaimSessionsResponse.results",
    ],
)
def test_honest_peer_sends_a_fraction_of_the_items_that_are_accepted(name: str) -> None:
    assert BOUNDS[name].most_items >= 4 * PORTION_ITEMS


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize(
    ("seconds", "nanos", "is_within"),
    [
        (0, 0, True),
        (MAX_SECONDS, 999_999_999, True),
        (MAX_SECONDS + 1, 0, False),
        (2**62, 0, False),
        (-1, 0, False),
        (-(2**62), 0, False),
        (0, 10**9, False),
        (0, -1, False),
    ],
)
def test_times_and_spans_are_those_of_clocks(
    name: str, seconds: int, nanos: int, *, is_within: bool
) -> None:
    message = made(name.partition(".")[0])
    span = getattr(message, fields()[name].name)
    span.seconds = seconds
    span.nanos = nanos
    assert is_accepted(message) == is_within


@pytest.mark.parametrize("name", sorted(MOST_BYTES))
def test_whole_message_is_refused_beyond_its_bytes(name: str) -> None:
    message = made(name)
    [texts] = [
        field
        for field in messages()[name].fields
        if field.message_type and field.message_type.GetOptions().map_entry
    ] or [messages()[name].fields_by_name["identity"]]
    values = getattr(message, texts.name)
    values["x"] = "x" * MOST_BYTES[name]
    assert not is_accepted(message)


@pytest.mark.parametrize("inner", ["Identity", "Resources", "Port"])
def test_what_a_session_has_within_is_read_within_its_bounds(inner: str) -> None:
    for name in (name for name in SCALARS if name.startswith(f"{inner}.")):
        for value, is_within in values_at_and_beyond(name):
            session = agent_pb2.Session()
            target = {
                "Identity": session.identity,
                "Resources": session.reservation,
                "Port": session.ports.add(protocol=agent_pb2.PROTOCOL_UDP),
            }[inner]
            setattr(target, fields()[name].name, value)
            if inner != "Port":
                del session.ports[:]
            assert is_accepted(session) == is_within, f"{name} {value!r:.40}"


def test_error_names_the_field() -> None:
    response = agent_pb2.WatchResponse(host=agent_pb2.Host(version="x" * 1000))
    with pytest.raises(OutOfBoundsError, match=r"^Host\.version is out of bounds$") as caught:
        check(response)
    assert caught.value.field == "Host.version"
