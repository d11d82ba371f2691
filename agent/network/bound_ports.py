"""Which ports players can reach, read off what /proc/<pid>/net says of sockets. Pure.

A UDP port is reachable once a socket is bound to it that is connected to nobody, a TCP port once a
socket listens there. A socket on a loopback address counts for nothing: no player comes that way.
One on the IPv6 wildcard counts for both families, as it does unless its program asked for IPv6
alone, which these files do not tell.
"""

import ipaddress
import re
import sys
from collections.abc import Container

from tiltyard.contract import Protocol

_STATES = {Protocol.TCP: "0A", Protocol.UDP: "07"}
"""TCP_LISTEN and TCP_CLOSE of the kernel's net/tcp_states.h."""
_SOCKET = re.compile(
    r"^ *\d+: ([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4}) [0-9A-F]+:[0-9A-F]{4} ([0-9A-F]{2}) ",
    re.MULTILINE,
)
"""Local address and port, those of the other side, and the state."""
_IN_USE = r"^{}: inuse (\d+)"
_WORD_DIGITS = 8


class TooManySocketsError(OSError):
    """A look ended without a result: there are more sockets than one look may read."""

    def __init__(self, most: int) -> None:
        super().__init__(f"its network has more than {most} sockets")


def bound_ports(
    table: str, protocol: Protocol, wanted: Container[int] = range(1 << 16)
) -> frozenset[int]:
    """Those of the wanted ports that players can reach, by lines of `udp`, `udp6`, `tcp`, `tcp6`.

    The address of a socket is read only where its port is wanted.
    """
    return frozenset(
        number
        for address, port, state in _SOCKET.findall(table)
        if state == _STATES[protocol]
        and (number := int(port, 16)) in wanted
        and is_reachable(_address(address))
    )


def sockets_in_use(counts: str, table: str) -> int:
    """How many sockets a table has, by the text of `sockstat` or `sockstat6`.

    The kernel goes through all of the machine's connections to write `tcp` for a container, and
    has these numbers at hand.
    """
    found = re.search(_IN_USE.format(table.upper()), counts, re.MULTILINE)
    return 0 if found is None else int(found[1])


def is_reachable(address: bytes) -> bool:
    """False for a loopback address, given its 4 or 16 bytes."""
    return not _ip(address).is_loopback


def is_local(address: bytes) -> bool:
    """True where 127.0.0.1 is reached, where the agent passes on what came to a TLS port."""
    return _ip(address).is_unspecified or _ip(address) == ipaddress.ip_address("127.0.0.1")


def _ip(address: bytes) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    ip = ipaddress.ip_address(address)
    return (ip.ipv4_mapped or ip) if isinstance(ip, ipaddress.IPv6Address) else ip


def _address(digits: str) -> bytes:
    """The bytes of an address; the kernel writes each word of 4 as its own byte order has it."""
    return b"".join(
        int(digits[at : at + _WORD_DIGITS], 16).to_bytes(4, sys.byteorder)
        for at in range(0, len(digits), _WORD_DIGITS)
    )
