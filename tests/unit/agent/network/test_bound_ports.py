"""What the kernel's tables of sockets say of the ports that players can reach."""

import ipaddress
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.network.bindings import bound_ports, sockets_in_use
from agent.network.socket_diag import is_reachable
from tiltyard.contract import Protocol

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
