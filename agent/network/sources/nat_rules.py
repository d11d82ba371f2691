"""Encodes the table `tiltyard` of nftables: its maps, rules and elements. Pure.

Two maps lead from the address, protocol and port of a container to those that players know:
`addresses` to an address and a port, `ports` to a port alone, where the kernel selects the
address. What neither map has, and comes from a bridge and a port within the range of host ports,
leaves from a port outside of the range: the engine would keep its port, which may be that of
another session.
"""

import socket
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agent.network.netlink import NESTED, attribute, attribute_list, attributes

TABLE = "tiltyard"
CHAIN = "postrouting"
ADDRESSES = "addresses"
PORTS = "ports"
MAPS = (ADDRESSES, PORTS)

_POSTROUTING = 4  # NF_INET_POST_ROUTING
_PRIORITY = 90  # Before the engine's rules, which have 100
_IS_MAP = 8  # NFT_SET_MAP
_PROTOCOL_AND_PORT_TYPES = (12, 13)  # For `nft list`: inet_proto, inet_service
_PORT_TYPE = 13
_PORT = struct.Struct(">H")
_HIGHEST_PORT = 65535
_LOWEST_PORT = 1024  # Lower ones are of services

# Registers: the first of four bytes, which overlaps that of 16 bytes
_FIRST = 8  # NFT_REG32_00
_NAME = 1  # NFT_REG_1
_NAME_BYTES = 16  # IFNAMSIZ
_NETWORK_HEADER = 1
_TRANSPORT_HEADER = 2
_TO_PORT = 2  # NF_NAT_RANGE_PROTO_SPECIFIED
_FROM_INTERFACE = 6  # NFT_META_IIFNAME
_TO_INTERFACE = 7  # NFT_META_OIFNAME
_PROTOCOL = 16  # NFT_META_L4PROTO
_EQUAL = 0  # NFT_CMP_EQ
_NOT_EQUAL = 1
_AT_MOST = 3
_AT_LEAST = 5


class ContainerEndpoint(NamedTuple):
    """A source of packets in a container. `address` is packed, `protocol` is a number of IP."""

    address: bytes
    protocol: int
    port: int


class PublicEndpoint(NamedTuple):
    """The source that others see. Without an address the kernel selects the interface's."""

    address: bytes
    port: int


Translations = Mapping[ContainerEndpoint, PublicEndpoint]


class Guard(NamedTuple):
    """The bridges of containers, and the first and last of the ports that are not theirs."""

    bridges: tuple[str, ...]
    ports: tuple[int, int]


@dataclass(frozen=True)
class IpVersion:
    """The layout of addresses in a version of IP.

    `size`: bytes of an address; `source`: the offset of the source address in a packet's header;
    `address_type`: for `nft list`.
    """

    family: int
    size: int
    source: int
    address_type: int

    @property
    def key(self) -> str:
        """The format of a key of both maps."""
        return f">{self.size}sB3xH2x"

    @property
    def public(self) -> str:
        """The format of a value of the map of addresses."""
        return f">{self.size}sH2x"

    def map(self, at: int, name: str) -> bytes:
        """Describe a map of the table, the `at`th of the request."""
        types = _PORT_TYPE
        size = _PORT.size
        if name == ADDRESSES:
            types = self.address_type << 6 | _PORT_TYPE
            size = struct.calcsize(self.public)
        key_types = self.address_type
        for each in _PROTOCOL_AND_PORT_TYPES:
            key_types = key_types << 6 | each
        return (
            text(1, TABLE)
            + text(2, name)
            + _number(3, _IS_MAP)
            + _number(4, key_types)
            + _number(5, struct.calcsize(self.key))
            + _number(6, types)
            + _number(7, size)
            + _number(10, 1 + at)
        )

    def rules(self, guard: Guard) -> list[bytes]:
        """Describe all rules; their comments say how many there are."""
        found = [*map(self._translating, MAPS), *_guarding(guard)]
        place = text(1, TABLE) + text(2, CHAIN)
        mark = _mark(len(found))
        comment = attribute(7, bytes([0, len(mark)]) + mark)
        return [place + attribute(4 | NESTED, rule) + comment for rule in found]

    def _translating(self, name: str) -> bytes:
        """The rule that translates by a map; packets that the map lacks continue."""
        after_address = _FIRST + self.size // 4
        translate = _expression("masq", _number(1, _TO_PORT) + _number(2, _FIRST))
        if name == ADDRESSES:
            data = _number(1, 0) + _number(2, self.family) + _number(3, _FIRST)
            translate = _expression("nat", data + _number(5, after_address))
        return (
            _load(_FIRST, _NETWORK_HEADER, self.source, self.size)
            + _meta(_PROTOCOL, after_address)
            + _load(after_address + 1, _TRANSPORT_HEADER, 0, 2)
            + _expression("lookup", text(1, name) + _number(2, _FIRST) + _number(3, _FIRST))
            + translate
        )

    def element(self, private: ContainerEndpoint, public: PublicEndpoint) -> bytes:
        """Describe an element of `map_of(public)`."""
        data = struct.pack(self.public, *public) if public.address else _PORT.pack(public.port)
        return _value(1, struct.pack(self.key, *private)) + _value(2, data)

    def decoded(
        self, part: Mapping[int, bytes]
    ) -> Iterator[tuple[ContainerEndpoint, PublicEndpoint]]:
        """Decode the elements of a listing."""
        for _, element in attribute_list(part.get(3, b"")):
            found = attributes(element)
            private = ContainerEndpoint(*struct.unpack(self.key, attributes(found[1])[1]))
            data = attributes(found[2])[1]
            if len(data) == _PORT.size:
                yield private, PublicEndpoint(b"", *_PORT.unpack(data))
            else:
                yield private, PublicEndpoint(*struct.unpack(self.public, data))


IP_VERSIONS = {
    4: IpVersion(socket.AF_INET, size=4, source=12, address_type=7),
    6: IpVersion(socket.AF_INET6, size=16, source=8, address_type=8),
}
"""The layouts by version of IP."""


def chain() -> bytes:
    """Describe the chain of all rules."""
    hook = attribute(4 | NESTED, _number(1, _POSTROUTING) + _number(2, _PRIORITY))
    return text(1, TABLE) + text(3, CHAIN) + text(7, "nat") + hook


def are_whole(rules: Sequence[Mapping[int, bytes]]) -> bool:
    """Whether a listing has all rules that were made together."""
    marks = {rule.get(7, b"")[2:] for rule in rules}
    return len(rules) >= len(MAPS) and marks == {_mark(len(rules))}


def map_of(public: PublicEndpoint) -> str:
    """The name of the map that has a translation to this."""
    return ADDRESSES if public.address else PORTS


def text(kind: int, value: str) -> bytes:
    """Encode an attribute of text, which ends with a zero."""
    return attribute(kind, value.encode() + b"\0")


def _mark(count: int) -> bytes:
    """The comment of each rule among `count`. Its first number changes with the table's form."""
    return b"tiltyard 2, %d rules\0" % count


def _guarding(guard: Guard) -> Iterator[bytes]:
    """The rules for what no map has; none if all ports are within the range."""
    first, last = guard.ports
    below = range(_LOWEST_PORT, first)
    above = range(last + 1, _HIGHEST_PORT + 1)
    outside = max(below, above, key=len)
    if not outside:
        return
    for bridge in guard.bridges:
        name = bridge.encode().ljust(_NAME_BYTES, b"\0")
        for protocol in (socket.IPPROTO_UDP, socket.IPPROTO_TCP):
            yield b"".join(
                (
                    _meta(_FROM_INTERFACE, _NAME),
                    _compare(_NAME, _EQUAL, name),
                    _meta(_TO_INTERFACE, _NAME),
                    _compare(_NAME, _NOT_EQUAL, name),
                    _meta(_PROTOCOL, _FIRST),
                    _compare(_FIRST, _EQUAL, bytes([protocol])),
                    _load(_FIRST, _TRANSPORT_HEADER, 0, 2),
                    _compare(_FIRST, _AT_LEAST, _PORT.pack(first)),
                    _compare(_FIRST, _AT_MOST, _PORT.pack(last)),
                    *_to_ports(outside),
                )
            )


def _to_ports(ports: range) -> Iterable[bytes]:
    for register, port in ((_FIRST, ports[0]), (_FIRST + 1, ports[-1])):
        yield _expression("immediate", _number(1, register) + _value(2, _PORT.pack(port)))
    to = _number(1, _TO_PORT) + _number(2, _FIRST) + _number(3, _FIRST + 1)
    yield _expression("masq", to)


def _number(kind: int, number: int) -> bytes:
    return attribute(kind, number.to_bytes(4))


def _load(register: int, header: int, offset: int, length: int) -> bytes:
    """Load a field of a packet's header."""
    where = _number(1, register) + _number(2, header) + _number(3, offset) + _number(4, length)
    return _expression("payload", where)


def _meta(key: int, register: int) -> bytes:
    return _expression("meta", _number(1, register) + _number(2, key))


def _compare(register: int, how: int, value: bytes) -> bytes:
    return _expression("cmp", _number(1, register) + _number(2, how) + _value(3, value))


def _expression(name: str, data: bytes) -> bytes:
    return attribute(1 | NESTED, text(1, name) + attribute(2 | NESTED, data))


def _value(kind: int, value: bytes) -> bytes:
    return attribute(kind | NESTED, attribute(1, value))
