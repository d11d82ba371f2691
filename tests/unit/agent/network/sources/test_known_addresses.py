"""The addresses and ports that are translated, and to which."""

from collections.abc import Iterable

import pytest

from agent.domain.sessions.session import Port
from agent.network.sources.source_translation import KnownAddresses, translations_of
from tests.unit.agent.network.sources.test_source_translation import (
    BIND,
    LOOPBACK,
    LOOPBACK6,
    ONE,
    PUBLIC,
    PUBLIC6,
    TCP,
    UDP,
    led,
)
from tiltyard.contract import Protocol


@pytest.mark.parametrize(
    ("own", "source"),
    [
        ({LOOPBACK, PUBLIC, BIND}, PUBLIC),
        ({LOOPBACK, BIND}, BIND),
        ({LOOPBACK}, b""),
    ],
)
def test_source_is_the_first_known_address_that_an_interface_has(
    own: Iterable[bytes], source: bytes
) -> None:
    assert KnownAddresses("192.0.2.1", "192.0.2.2").source(own) == source


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "2001:db8::1", "::1", "::"])
def test_source_is_no_address_from_which_packets_cannot_leave(address: str) -> None:
    assert KnownAddresses(address, address).source({LOOPBACK, LOOPBACK6, PUBLIC}) == b""


@pytest.mark.parametrize(
    ("public", "bind", "version", "source"),
    [
        ("192.0.2.1", "0.0.0.0", 4, PUBLIC),
        ("192.0.2.1", "::", 4, PUBLIC),
        ("2001:db8::1", "::", 6, PUBLIC6),
        ("2001:db8::9", "2001:db8::1", 6, PUBLIC6),
        ("2001:db8::1", "0.0.0.0", 4, b""),
        ("2001:db8::1", "192.0.2.1", 4, PUBLIC),
    ],
)
def test_translations_are_of_the_version_by_which_players_come(
    public: str, bind: str, version: int, source: bytes
) -> None:
    known = KnownAddresses(public, bind)
    assert known.version == version
    assert known.source({PUBLIC, PUBLIC6}) == source


def test_tls_ports_are_not_translated() -> None:
    ports = [
        Port(7777, Protocol.UDP, 20000),
        Port(7778, Protocol.TCP, 20001),
        Port(443, Protocol.TCP, 20002, tls=True),
    ]
    expected = led((ONE, UDP, 7777, 20000), (ONE, TCP, 7778, 20001))
    assert translations_of(ONE, ports, PUBLIC) == expected


def test_port_that_is_the_same_inside_is_translated_as_well() -> None:
    port = Port(7777, Protocol.UDP, 20000, same=True)
    assert translations_of(ONE, [port], PUBLIC) == led((ONE, UDP, 20000, 20000))
