"""What the kernel's tables of sockets say of the ports that players can reach."""

import ipaddress
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.network.bound_ports import bound_ports, is_reachable, sockets_in_use
from tiltyard.contract import Protocol

UDP = """\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
 3382: 00000000:1E61 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 7990072 2 00000000bba8fe74 0
10280: 0100007F:7149 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 7990901 2 000000002a261df8 0
10281: 020011AC:714A 08080808:0035 01 00000000:00000000 00:00000000 00000000  1000        0 7990902 2 000000002a261df9 0
10282: 020011AC:714B 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 7990903 2 000000002a261dfa 3
"""  # noqa: E501  # as the kernel writes it
"""Of Linux 6.18: the wildcard, loopback, connected to somebody, and an address."""

TCP6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000000000000:1E62 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 7990073 1 000000002c52e965 100 0 0 10 0
   1: 00000000000000000000000001000000:1E63 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 7990074 1 000000002c52e966 100 0 0 10 0
   2: 0000000000000000FFFF00000100007F:1E64 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 7990075 1 000000002c52e967 100 0 0 10 0
   3: 0000000000000000FFFF0000020011AC:1E65 0000000000000000FFFF000001001FAC:CF10 01 00000000:00000000 00:00000000 00000000  1000        0 7990076 1 000000002c52e968 20 4 30 10 -1
   4: 0000000000000000FFFF0000020011AC:1E66 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 7990077 1 000000002c52e969 100 0 0 10 0
   5: 0000000000000000FFFF0000020011AC:1E67 0000000000000000FFFF000001001FAC:CF10 06 00000000:00000000 03:000016CC 00000000     0        0 0 3 00000000821f3bae
"""  # noqa: E501  # as the kernel writes it
"""The wildcard of both families, ::1, 127.0.0.1 mapped, a connection, an address, TIME_WAIT."""

SOCKSTAT = """\
sockets: used 162
TCP: inuse 3 orphan 0 tw 2 alloc 12 mem 1
UDP: inuse 1 mem 0
UDPLITE: inuse 0
RAW: inuse 0
FRAG: inuse 0 memory 0
"""
SOCKSTAT6 = (
    "TCP6: inuse 7\nUDP6: inuse 0\nUDPLITE6: inuse 0\nRAW6: inuse 0\nFRAG6: inuse 0 memory 0\n"
)

little_endian = pytest.mark.skipif(sys.byteorder != "little", reason="captured on little-endian")


@little_endian
def test_udp_ports_are_those_of_sockets_that_anybody_may_send_to() -> None:
    assert bound_ports(UDP, Protocol.UDP) == {0x1E61, 0x714B}


@little_endian
def test_tcp_ports_are_those_of_sockets_that_listen() -> None:
    assert bound_ports(TCP6, Protocol.TCP) == {0x1E62, 0x1E66}


def test_a_table_without_sockets_has_no_ports() -> None:
    for table in ("", UDP.partition("\n")[0], TCP6.partition("\n")[0]):
        assert bound_ports(table, Protocol.UDP) == bound_ports(table, Protocol.TCP) == set()


def test_numbers_of_sockets_are_those_of_their_own_line() -> None:
    assert [sockets_in_use(SOCKSTAT, name) for name in ("tcp", "udp")] == [3, 1]
    assert [sockets_in_use(SOCKSTAT6, name) for name in ("tcp6", "udp6")] == [7, 0]
    assert sockets_in_use(SOCKSTAT, "tcp6") == sockets_in_use("", "tcp") == 0


@pytest.mark.parametrize(
    ("address", "reachable"),
    [
        ("0.0.0.0", True),
        ("127.255.1.2", False),
        ("::", True),
        ("::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:172.17.0.2", True),
    ],
)
def test_players_do_not_come_by_loopback(address: str, *, reachable: bool) -> None:
    assert is_reachable(ipaddress.ip_address(address).packed) is reachable


addresses = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6))
sockets = st.tuples(addresses, st.integers(0, 65535), st.integers(1, 12))


def line(number: int, address: bytes, port: int, state: int) -> str:
    """A socket as the kernel's udp4_format_sock and get_tcp6_sock write it."""
    words = [address[at : at + 4] for at in range(0, len(address), 4)]
    digits = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    other = "0" * len(digits)
    rest = "00000000:00000000 00:00000000 00000000  1000        0 7990072 2 00000000bba8fe74 0"
    return f"{number:5d}: {digits}:{port:04X} {other}:0000 {state:02X} {rest}\n"


@given(st.lists(sockets))
def test_every_socket_is_judged_by_its_own_line(
    found: list[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int, int]],
) -> None:
    table = "  sl  local_address\n" + "".join(
        line(number, address.packed, port, state)
        for number, (address, port, state) in enumerate(found)
    )
    for protocol, wanted in ((Protocol.TCP, 10), (Protocol.UDP, 7)):
        assert bound_ports(table, protocol) == {
            port
            for address, port, state in found
            if state == wanted and is_reachable(address.packed)
        }


@given(st.text(), st.sampled_from(Protocol))
def test_no_text_breaks_it(text: str, protocol: Protocol) -> None:
    assert bound_ports(text, protocol) == set()
    assert sockets_in_use(text, protocol.value) == 0
