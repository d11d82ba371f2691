"""The table `tiltyard` of nftables, which translates the source of what containers send. Blocks.

Docker Engine translates only what comes in. Its translation back is an entry of connection
tracking: what a game sends first, or after the kernel has forgotten a quiet flow, would leave from
the container's port and from any address of the host. Two maps lead from the address, protocol
and port of a container to those that players know: `addresses` to an address and a port, `ports`
to a port alone, where the kernel selects the address. Their rules come before the engine's. The
kernel is asked directly: the command `nft` takes 3 to 20 ms for each change.
"""

import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from agent.network import netlink
from agent.network.conntrack import Flows, forget_by
from agent.network.netlink import FAMILY, NESTED, Netfilter, attribute, attribute_list, attributes

TABLE = "tiltyard"
CHUNK = 500  # Most elements of one request: the length of an attribute has 16 bits

_NFTABLES = 10  # NFNL_SUBSYS_NFTABLES
_CREATE = 0x400  # NLM_F_CREATE
_APPEND = 0x800  # NLM_F_APPEND

_OURS = _NFTABLES << 8  # The subsystem is the upper byte of a message's type
_NEW_TABLE = _OURS
_DELETE_TABLE = _OURS | 2
_NEW_CHAIN = _OURS | 3
_NEW_RULE = _OURS | 6
_GET_RULE = _OURS | 7
_NEW_SET = _OURS | 9
_NEW_ELEMENTS = _OURS | 12
_GET_ELEMENTS = _OURS | 13
_DELETE_ELEMENTS = _OURS | 14

_CHAIN = "postrouting"
_POSTROUTING = 4  # NF_INET_POST_ROUTING
_PRIORITY = 90  # Before the engine's rules, which have 100
_MARK = b"tiltyard 1"
"""The comment of our rules. Its number changes with the table's form."""

_IS_MAP = 8  # NFT_SET_MAP
_KEY = struct.Struct(">4sB3xH2x")
_PUBLIC = struct.Struct(">4sH2x")
_PORT = struct.Struct(">H")
_KEY_TYPE = 7 << 12 | 12 << 6 | 13  # For `nft list`: ipv4_addr . inet_proto . inet_service
_PUBLIC_TYPE = 7 << 6 | 13
_PORT_TYPE = 13

# Registers of four bytes, which hold first a key and then its result
_FIRST = 8  # NFT_REG32_00
_SECOND = 9
_THIRD = 10
_NETWORK_HEADER = 1
_TRANSPORT_HEADER = 2
_SOURCE_ADDRESS = 12  # Its offset in a header of IPv4
_TO_PORT = 2  # NF_NAT_RANGE_PROTO_SPECIFIED
_PROTOCOL = 16  # NFT_META_L4PROTO


class Private(NamedTuple):
    """What a container sends from. `address`: IPv4, packed; `protocol`: a number of IP."""

    address: bytes
    protocol: int
    port: int


class Public(NamedTuple):
    """What others see. Without an address the kernel selects that of the interface."""

    address: bytes
    port: int


Translations = Mapping[Private, Public]


class NatTable:
    """The table in this network namespace. All methods raise OSError."""

    def __init__(self) -> None:
        self._netfilter = Netfilter()

    def close(self) -> None:
        """Close the connection to the kernel; the next call opens another one."""
        self._netfilter.close()

    def read(self) -> dict[Private, Public] | None:
        """Return the content of the table; None if the table or a part of it is missing."""
        found: dict[Private, Public] = {}
        try:
            rules = self._dump(_GET_RULE, _text(1, TABLE) + _text(2, _CHAIN))
            for name in _MAPS:
                for part in self._dump(_GET_ELEMENTS, _text(1, TABLE) + _text(2, name)):
                    found.update(_decoded(part))
        except FileNotFoundError:
            return None
        of_table = [rule for rule in rules if rule[1] == _zero_ended(TABLE)]
        is_whole = [_MARK in rule.get(7, b"") for rule in of_table] == [True] * len(_MAPS)
        return found if is_whole else None

    def make(self) -> None:
        """Make the table, without content, in place of one that is there."""
        table = _text(1, TABLE)
        hook = attribute(4 | NESTED, _number(1, _POSTROUTING) + _number(2, _PRIORITY))
        chain = table + _text(3, _CHAIN) + _text(7, "nat") + hook
        requests = [
            (_NEW_TABLE, _CREATE, table),  # There may be none to delete
            (_DELETE_TABLE, 0, table),
            (_NEW_TABLE, _CREATE, table),
            *((_NEW_SET, _CREATE, _map(at, name)) for at, name in enumerate(_MAPS)),
            (_NEW_CHAIN, _CREATE, chain),
            *((_NEW_RULE, _CREATE | _APPEND, _rule(name)) for name in _MAPS),
        ]
        self._carry_out(requests)

    def remove(self) -> None:
        """Remove the table, if there is one."""
        table = _text(1, TABLE)
        self._carry_out([(_NEW_TABLE, _CREATE, table), (_DELETE_TABLE, 0, table)])

    def change(self, remove: Translations, add: Translations) -> None:
        """Remove translations, which must be there, then add others; few of them in one step."""
        removing = _elements(_DELETE_ELEMENTS, 0, remove)
        adding = _elements(_NEW_ELEMENTS, _CREATE, add)
        requests = [*removing, *adding]
        if 0 < len(remove) + len(add) <= CHUNK:
            self._carry_out(requests)
        else:
            for request in requests:
                self._carry_out([request])

    def forget(self, flows: Sequence[Flows]) -> None:
        """Delete flows of connection tracking, by the same connection."""
        with self._netfilter.connected() as kernel:
            forget_by(kernel, flows)

    def _dump(self, kind: int, what: bytes) -> list[dict[int, bytes]]:
        header = FAMILY.pack(socket.AF_INET, 0, 0)
        with self._netfilter.connected() as kernel:
            found = list(netlink.asked(kernel, kind, netlink.DUMP, header + what))
        return [attributes(body[FAMILY.size :]) for body in found]

    def _carry_out(self, requests: Sequence[tuple[int, int, bytes]]) -> None:
        header = FAMILY.pack(socket.AF_INET, 0, 0)
        batch = [(kind, flags, header + body) for kind, flags, body in requests]
        with self._netfilter.connected() as kernel:
            netlink.transact(kernel, _NFTABLES, batch)


def _text(kind: int, text: str) -> bytes:
    return attribute(kind, _zero_ended(text))


def _zero_ended(text: str) -> bytes:
    return text.encode() + b"\0"


def _number(kind: int, number: int) -> bytes:
    return attribute(kind, number.to_bytes(4))


def _map(at: int, name: str) -> bytes:
    """Describe a map of the table, the `at`th of the request."""
    data_type, data, _ = _MAPS[name]
    return (
        _text(1, TABLE)
        + _text(2, name)
        + _number(3, _IS_MAP)
        + _number(4, _KEY_TYPE)
        + _number(5, _KEY.size)
        + _number(6, data_type)
        + _number(7, data.size)
        + _number(10, 1 + at)
    )


def _rule(name: str) -> bytes:
    """Describe the rule that translates by a map; packets that the map lacks continue."""
    _, _, translate = _MAPS[name]
    expressions = (
        _load(_FIRST, _NETWORK_HEADER, _SOURCE_ADDRESS, 4)
        + _expression("meta", _number(1, _SECOND) + _number(2, _PROTOCOL))
        + _load(_THIRD, _TRANSPORT_HEADER, 0, 2)
        + _expression("lookup", _text(1, name) + _number(2, _FIRST) + _number(3, _FIRST))
        + translate
    )
    comment = bytes([0, len(_MARK) + 1]) + _MARK + b"\0"
    place = _text(1, TABLE) + _text(2, _CHAIN)
    return place + attribute(4 | NESTED, expressions) + attribute(7, comment)


def _load(register: int, header: int, offset: int, length: int) -> bytes:
    """Load a field of a packet's header."""
    where = _number(1, register) + _number(2, header) + _number(3, offset) + _number(4, length)
    return _expression("payload", where)


def _expression(name: str, data: bytes) -> bytes:
    return attribute(1 | NESTED, _text(1, name) + attribute(2 | NESTED, data))


def _elements(
    kind: int, flags: int, translations: Translations
) -> Iterator[tuple[int, int, bytes]]:
    """Requests for the elements of each map."""
    for name in _MAPS:
        own = [each for each in translations.items() if _map_of(each[1]) == name]
        for begin in range(0, len(own), CHUNK):
            chunk = own[begin : begin + CHUNK]
            listed = b"".join(attribute(1 | NESTED, _element(*each)) for each in chunk)
            place = _text(1, TABLE) + _text(2, name)
            yield kind, flags, place + attribute(3 | NESTED, listed)


def _map_of(public: Public) -> str:
    return "addresses" if public.address else "ports"


def _element(private: Private, public: Public) -> bytes:
    data = _PUBLIC.pack(*public) if public.address else _PORT.pack(public.port)
    return _value(1, _KEY.pack(*private)) + _value(2, data)


def _value(kind: int, value: bytes) -> bytes:
    return attribute(kind | NESTED, attribute(1, value))


def _decoded(part: Mapping[int, bytes]) -> Iterator[tuple[Private, Public]]:
    """Decode the elements of a listing."""
    for _, element in attribute_list(part.get(3, b"")):
        found = attributes(element)
        key = attributes(found[1])[1]
        data = attributes(found[2])[1]
        public = Public(*_PUBLIC.unpack(data)) if len(data) == _PUBLIC.size else None
        yield Private(*_KEY.unpack(key)), public or Public(b"", *_PORT.unpack(data))


_SNAT = _expression(
    "nat",
    _number(1, 0) + _number(2, socket.AF_INET) + _number(3, _FIRST) + _number(5, _SECOND),
)
_MASQUERADE = _expression("masq", _number(1, _TO_PORT) + _number(2, _FIRST))
_MAPS = {
    "addresses": (_PUBLIC_TYPE, _PUBLIC, _SNAT),
    "ports": (_PORT_TYPE, _PORT, _MASQUERADE),
}
