"""Today's contract breaks none that was released, and a change that does is found."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import (
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from tests.contract.compatibility import breaks
from tests.contract.formats import NUMBERS, released, today
from tiltyard.contract import FORMAT

Change = Callable[[FileDescriptorProto], object]


@pytest.fixture(scope="module")
def now() -> FileDescriptorSet:
    return today()


@pytest.mark.parametrize("number", NUMBERS)
def test_clients_of_a_released_contract_are_understood(
    number: str, now: FileDescriptorSet
) -> None:
    assert breaks(released(number), now) == []


def test_every_released_contract_keeps_to_those_before_it() -> None:
    for older, newer in itertools.pairwise(NUMBERS):
        assert breaks(released(older), released(newer)) == []


@pytest.mark.parametrize("enum", ["State", "EndReason", "Protocol", "NetworkMode"])
def test_a_value_that_nobody_can_pass_over_is_a_new_format(
    enum: str, now: FileDescriptorSet
) -> None:
    """An ErrorReason that is not known is a failure like others: it raises nothing."""
    if int(NUMBERS[-1]) == FORMAT:
        known = _named(_ours(released(NUMBERS[-1])).enum_type, enum)
        assert _named(_ours(now).enum_type, enum) == known


def _ours(files: FileDescriptorSet) -> FileDescriptorProto:
    [file] = [each for each in files.file if each.name.startswith("tiltyard/")]
    return file


def _named(elements: Any, name: str) -> Any:
    [found] = [each for each in elements if each.name == name]
    return found


def _message(file: FileDescriptorProto, name: str) -> Any:
    return _named(file.message_type, name)


def _field(message: str, name: str) -> Callable[[FileDescriptorProto], Any]:
    return lambda file: _named(_message(file, message).field, name)


def _drop(elements: Any, name: str) -> None:
    elements.remove(_named(elements, name))


def _drop_tls(*, number: bool = False, name: bool = False) -> Change:
    """Drop a field of a host, and reserve its number or its name."""

    def change(file: FileDescriptorProto) -> None:
        host = _message(file, "Host")
        _drop(host.field, "tls")
        if number:
            host.reserved_range.add(start=14, end=15)
        if name:
            host.reserved_name.append("tls")

    return change


def _drop_value(file: FileDescriptorProto) -> None:
    _drop(_named(file.enum_type, "EndReason").value, "END_REASON_OOM")


def _swap_values(file: FileDescriptorProto) -> None:
    values = _named(file.enum_type, "State").value
    values[1].number, values[2].number = values[2].number, values[1].number


def _set(find: Callable[[FileDescriptorProto], Any], **facts: Any) -> Change:
    def change(file: FileDescriptorProto) -> None:
        element = find(file)
        for name, value in facts.items():
            setattr(element, name, value)

    return change


_ttl = _field("SessionSpec", "ttl")
_heartbeat = _field("WatchResponse", "heartbeat")
_reserve_both = _drop_tls(number=True, name=True)
METHODS = [each.name for each in _ours(released("1")).service[0].method]
BREAKS: dict[str, tuple[Change, list[str]]] = {
    "the file": (
        _set(lambda file: file, name="tiltyard/agent/v2/agent.proto"),
        ["tiltyard/agent/v1/agent.proto"],
    ),
    "the package": (
        _set(lambda file: file, package="tiltyard.agent.v2"),
        ["tiltyard/agent/v1/agent.proto"],
    ),
    "a message": (
        lambda file: _drop(file.message_type, "Moment"),
        ["Moment", "Moment 1", "Moment 2"],
    ),
    "a message within one": (
        lambda file: _drop(_message(file, "Identity").nested_type, "LabelsEntry"),
        ["Identity.LabelsEntry", "Identity.LabelsEntry 1", "Identity.LabelsEntry 2"],
    ),
    "a field": (_drop_tls(), ["Host 14"]),
    "a field of which the number alone is reserved": (_drop_tls(number=True), ["Host 14"]),
    "a field of which the name alone is reserved": (_drop_tls(name=True), ["Host 14"]),
    "a field's number": (_set(_ttl, number=70), ["SessionSpec 7"]),
    "a field's name": (_set(_ttl, name="lifetime"), ["SessionSpec 7"]),
    "a field's name in JSON": (_set(_ttl, json_name="lifetime"), ["SessionSpec 7"]),
    "a field's type": (_set(_field("Host", "free_sessions"), type=5), ["Host 8"]),
    "a field that was a message": (_set(_ttl, type=5), ["SessionSpec 7"]),
    "a field's message": (
        _set(_ttl, type_name=".google.protobuf.Timestamp"),
        ["SessionSpec 7"],
    ),
    "a field's label": (
        _set(_ttl, label=FieldDescriptorProto.LABEL_REPEATED),
        ["SessionSpec 7"],
    ),
    "whether a field is absent": (
        _set(_field("Report", "exit_code"), proto3_optional=False),
        ["Report 8"],
    ),
    "a oneof": (
        lambda file: _heartbeat(file).ClearField("oneof_index"),
        ["WatchResponse 7"],
    ),
    "an enum": (
        lambda file: _drop(file.enum_type, "Protocol"),
        ["Protocol", "Protocol 0", "Protocol 1", "Protocol 2"],
    ),
    "a value": (_drop_value, ["EndReason 4"]),
    "the numbers of values": (_swap_values, ["State 1", "State 2"]),
    "the service": (
        lambda file: _drop(file.service, "AgentService"),
        ["AgentService", *(f"AgentService.{name}" for name in METHODS)],
    ),
    "a method": (
        lambda file: _drop(file.service[0].method, "SetDrain"),
        ["AgentService.SetDrain"],
    ),
    "what a method answers": (
        _set(lambda file: _named(file.service[0].method, "Watch"), server_streaming=False),
        ["AgentService.Watch"],
    ),
}


def _reserve_value(file: FileDescriptorProto) -> None:
    _drop_value(file)
    enum = _named(file.enum_type, "EndReason")
    enum.reserved_range.add(start=4, end=4)
    enum.reserved_name.append("END_REASON_OOM")


def _add(file: FileDescriptorProto) -> None:
    field = _message(file, "Host").field.add(name="colour", number=99, json_name="colour")
    field.type = field.TYPE_STRING
    field.label = field.LABEL_OPTIONAL
    _named(file.enum_type, "State").value.add(name="STATE_PAUSED", number=7)
    file.message_type.add(name="PauseSessionRequest")
    names = {"input_type": ".a.B", "output_type": ".a.C"}
    file.service[0].method.add(name="PauseSession", **names)


@pytest.mark.parametrize("what", BREAKS)
def test_a_change_that_breaks_is_found(what: str) -> None:
    change, found = BREAKS[what]
    changed = released("1")
    change(_ours(changed))
    assert breaks(released("1"), changed) == found


@pytest.mark.parametrize("change", [_add, _reserve_both, _reserve_value])
def test_what_breaks_nothing_is_accepted(change: Change) -> None:
    changed = released("1")
    change(_ours(changed))
    assert breaks(released("1"), changed) == []


@pytest.mark.parametrize(
    ("given_up", "found"),
    [
        (_reserve_both, ["Host reserves tls", "Host reserves 14"]),
        (_reserve_value, ["EndReason reserves END_REASON_OOM", "EndReason reserves 4"]),
    ],
)
def test_what_was_given_up_is_not_used_again(given_up: Change, found: list[str]) -> None:
    older = released("1")
    newer = released("1")
    given_up(_ours(older))
    assert [each for each in breaks(older, newer) if "reserves" in each] == found
