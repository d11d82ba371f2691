"""The host ports that a request asks for."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from controlplane.domain.errors import InvalidRequestError
from controlplane.sessions.start_request import Pin, requested_ports
from tests.support.controlplane.samples import APPLICATION
from tiltyard.contract import NetworkMode, PortRequest, Protocol

TCP = Protocol.TCP
UDP = Protocol.UDP
THREE_PORTS = replace(
    APPLICATION,
    ports=(PortRequest(1, TCP), PortRequest(1, UDP), PortRequest(2, UDP)),
)


def pinned(pins: Sequence[Pin], **changes: Any) -> list[int]:
    """The host ports that a request asks for, 0 for any."""
    application = replace(THREE_PORTS, **changes)
    return [port.pinned for port in requested_ports(application, pins)]


def test_pins_keep_the_order_of_the_application() -> None:
    assert pinned([Pin(2, 20002), Pin(1, 20001, UDP)]) == [0, 20001, 20002]


@pytest.mark.parametrize(
    ("pins", "fields"),
    [
        ([Pin(1, 1)], ["ports[0].container"]),
        ([Pin(3, 1), Pin(2, 1, TCP)], ["ports[0].container", "ports[1].container"]),
        ([Pin(2, 1), Pin(2, 2)], ["ports[1].container"]),
    ],
)
def test_invalid_pins_are_refused(pins: list[Pin], fields: list[str]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        pinned(pins)
    assert [violation.field for violation in caught.value.violations] == fields


@pytest.mark.parametrize(
    ("pins", "expected"),
    [
        ([], [0, 0, 0]),
        ([Pin(1, 20001, TCP)], [20001, 20002, 20003]),
        ([Pin(1, 20001, UDP)], [20000, 20001, 20002]),
        ([Pin(2, 20001)], [19999, 20000, 20001]),
        ([Pin(1, 20001, UDP), Pin(2, 25000)], [20000, 20001, 25000]),
        ([Pin(2, 25000), Pin(1, 20001, TCP)], [20001, 20002, 25000]),
        ([Pin(2, 65535)], [65533, 65534, 65535]),
    ],
)
def test_pin_decides_the_ports_beside_it(pins: list[Pin], expected: list[int]) -> None:
    assert pinned(pins, contiguous=True) == expected


@pytest.mark.parametrize(
    ("pins", "field"),
    [
        ([Pin(1, 65534, TCP)], "ports[0].host"),
        ([Pin(1, 20000, TCP), Pin(1, 65535, UDP)], "ports[1].host"),
        ([Pin(2, 2)], "ports[0].host"),
    ],
)
def test_pin_without_room_for_the_ports_beside_it_is_refused(pins: list[Pin], field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        pinned(pins, contiguous=True)
    [violation] = caught.value.violations
    assert violation.field == field
    assert violation.description == "leaves no room for the ports beside it"


def test_same_port_pinned_to_what_the_program_binds_is_refused() -> None:
    ports = (PortRequest(1, UDP, same=True), PortRequest(2, UDP), PortRequest(3, TCP))
    with pytest.raises(InvalidRequestError) as caught:
        pinned([Pin(1, 2)], ports=ports)
    [violation] = caught.value.violations
    assert violation.field == "ports[0].host"
    assert violation.description == "the application listens on 2/udp for another port"
    assert pinned([Pin(1, 2)], ports=ports, network_mode=NetworkMode.HOST) == [2, 0, 0]
    assert pinned([Pin(1, 3)], ports=ports) == [3, 0, 0]


def test_violations_have_the_names_of_the_query() -> None:
    application = replace(APPLICATION, contiguous=True)
    with pytest.raises(InvalidRequestError) as caught:
        requested_ports(application, [Pin(2, 1)], ["ports[2]"])
    assert [violation.field for violation in caught.value.violations] == ["ports[2]"]
