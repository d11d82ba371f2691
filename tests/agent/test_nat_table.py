"""The table of nftables, in a network namespace of the test."""

import socket

import pytest

from agent.network import netlink
from agent.network.sources.nat_rules import ContainerEndpoint, Guard, PublicEndpoint
from agent.network.sources.nat_table import CHUNK, NatTable
from agent.network.sources.source_translation import own_addresses
from tests.agent.test_conntrack import apart

LOOPBACK = bytes([127, 0, 0, 1])
PUBLIC = bytes([203, 0, 113, 5])
UDP = socket.IPPROTO_UDP
TCP = socket.IPPROTO_TCP
TO_ADDRESS = {ContainerEndpoint(bytes([172, 17, 0, 2]), UDP, 7777): PublicEndpoint(PUBLIC, 20000)}
TO_PORT = {ContainerEndpoint(bytes([172, 17, 0, 3]), TCP, 7777): PublicEndpoint(b"", 20001)}
GUARD = Guard(("docker0", "tiltyard0"), (20000, 30000))
V6 = {
    ContainerEndpoint(bytes(15) + b"\2", UDP, 7777): PublicEndpoint(bytes(15) + b"\1", 20000),
    ContainerEndpoint(bytes(15) + b"\3", TCP, 7777): PublicEndpoint(b"", 20001),
}


@pytest.mark.root
@apart
def test_content_is_read_as_it_was_written() -> None:
    table = NatTable()
    assert table.read() is None
    table.make(GUARD)
    assert table.read() == {}
    table.change({}, TO_ADDRESS | TO_PORT)
    assert table.read() == TO_ADDRESS | TO_PORT
    table.change(TO_PORT, {})
    assert table.read() == TO_ADDRESS
    table.remove()
    assert table.read() is None
    table.close()


@pytest.mark.root
@apart
def test_tables_of_both_versions_are_apart() -> None:
    tables = [NatTable(4), NatTable(6)]
    for table, content in zip(tables, (TO_ADDRESS, V6), strict=True):
        table.make(GUARD)
        table.change({}, content)
    assert [table.read() for table in tables] == [TO_ADDRESS, V6]
    tables[0].remove()
    assert [table.read() for table in tables] == [None, V6]
    for table in tables:
        table.close()


@pytest.mark.root
@apart
@pytest.mark.parametrize(
    "guard",
    [
        Guard(("docker0",), (1024, 65534)),
        Guard(("docker0",), (1024, 65535)),  # no port is left
        Guard((), (20000, 30000)),
    ],
)
def test_content_survives_other_rules(guard: Guard) -> None:
    table = NatTable()
    table.make(GUARD)
    table.change({}, TO_ADDRESS)
    table.set_rules(guard)
    assert table.read() == TO_ADDRESS
    table.close()


@pytest.mark.root
@apart
def test_change_that_fails_changes_nothing() -> None:
    table = NatTable()
    table.make(GUARD)
    with pytest.raises(FileNotFoundError):
        table.change(TO_PORT, TO_ADDRESS)
    assert table.read() == {}
    table.change({}, TO_ADDRESS)
    assert table.read() == TO_ADDRESS
    table.close()


@pytest.mark.root
@apart
def test_more_than_one_request_holds_can_be_written() -> None:
    table = NatTable()
    table.make(GUARD)
    many = {}
    for number in range(2 * CHUNK + 1):
        source = ContainerEndpoint(bytes([172, 17, number >> 8, number & 255]), UDP, 7777)
        many[source] = PublicEndpoint(PUBLIC, number)
    table.change({}, many)
    assert table.read() == many
    table.change(many, {})
    assert table.read() == {}
    table.close()


@pytest.mark.root
@apart
def test_table_without_one_of_its_rules_is_not_whole() -> None:
    table = NatTable()
    table.make(GUARD)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as kernel:
        names = netlink.attribute(1, b"tiltyard\0") + netlink.attribute(2, b"postrouting\0")
        body = netlink.FAMILY.pack(socket.AF_INET, 0, 0) + names
        netlink.transact(kernel, 10, [(10 << 8 | 8, 0, body)])  # NFT_MSG_DELRULE
    assert table.read() is None
    table.make(GUARD)
    assert table.read() == {}
    table.close()


@pytest.mark.root
@apart
def test_addresses_are_those_of_the_namespace() -> None:
    assert own_addresses() == frozenset()


def test_addresses_include_loopback() -> None:
    assert LOOPBACK in own_addresses()
