"""The table `tiltyard` of nftables, which translates the source of what containers send. Blocks.

Docker Engine translates only what comes in. Its translation back is an entry of connection
tracking: what a game sends first, or after the kernel has forgotten a quiet flow, would leave from
the container's port and from any address of the host. The rules of the table come before the
engine's. The kernel is asked directly: the command `nft` takes 3 to 20 ms for each change.
"""

from collections.abc import Iterator, Sequence

from agent.network import netlink
from agent.network.conntrack import Flows, forget_by
from agent.network.netlink import FAMILY, NESTED, Netfilter, attribute, attributes
from agent.network.sources.nat_rules import (
    CHAIN,
    IP_VERSIONS,
    MAPS,
    TABLE,
    ContainerEndpoint,
    Guard,
    PublicEndpoint,
    Translations,
    are_whole,
    chain,
    map_of,
    text,
)

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
_DELETE_RULE = _OURS | 8
_NEW_SET = _OURS | 9
_NEW_ELEMENTS = _OURS | 12
_GET_ELEMENTS = _OURS | 13
_DELETE_ELEMENTS = _OURS | 14


class NatTable:
    """The table for a version of IP in this network namespace. All methods raise OSError."""

    def __init__(self, version: int = 4) -> None:
        self._ip_version = IP_VERSIONS[version]
        self._netfilter = Netfilter()

    def close(self) -> None:
        """Close the connection to the kernel; the next call opens another one."""
        self._netfilter.close()

    def read(self) -> dict[ContainerEndpoint, PublicEndpoint] | None:
        """Return the content of the table; None if the table or a part of it is missing."""
        found: dict[ContainerEndpoint, PublicEndpoint] = {}
        try:
            rules = self._dump(_GET_RULE, text(1, TABLE) + text(2, CHAIN))
            for name in MAPS:
                for part in self._dump(_GET_ELEMENTS, text(1, TABLE) + text(2, name)):
                    found.update(self._ip_version.decoded(part))
        except FileNotFoundError:
            return None
        of_table = [rule for rule in rules if rule[1] == TABLE.encode() + b"\0"]
        return found if are_whole(of_table) else None

    def make(self, guard: Guard) -> None:
        """Make the table, without content, in place of one that is there."""
        table = text(1, TABLE)
        requests = [
            (_NEW_TABLE, _CREATE, table),  # There may be none to delete
            (_DELETE_TABLE, 0, table),
            (_NEW_TABLE, _CREATE, table),
            *((_NEW_SET, _CREATE, self._ip_version.map(at, name)) for at, name in enumerate(MAPS)),
            (_NEW_CHAIN, _CREATE, chain()),
            *self._rules(guard),
        ]
        self._carry_out(requests)

    def set_rules(self, guard: Guard) -> None:
        """Replace the rules of a table that is there, which keeps its content."""
        delete_all = text(1, TABLE) + text(2, CHAIN)
        self._carry_out([(_DELETE_RULE, 0, delete_all), *self._rules(guard)])

    def remove(self) -> None:
        """Remove the table, if there is one."""
        table = text(1, TABLE)
        self._carry_out([(_NEW_TABLE, _CREATE, table), (_DELETE_TABLE, 0, table)])

    def change(self, remove: Translations, add: Translations) -> None:
        """Remove translations, which must be there, then add others; few of them in one step."""
        removing = self._elements(_DELETE_ELEMENTS, 0, remove)
        adding = self._elements(_NEW_ELEMENTS, _CREATE, add)
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

    def _rules(self, guard: Guard) -> list[tuple[int, int, bytes]]:
        return [(_NEW_RULE, _CREATE | _APPEND, rule) for rule in self._ip_version.rules(guard)]

    def _elements(
        self, kind: int, flags: int, translations: Translations
    ) -> Iterator[tuple[int, int, bytes]]:
        """Requests for the elements of each map."""
        for name in MAPS:
            own = [each for each in translations.items() if map_of(each[1]) == name]
            for begin in range(0, len(own), CHUNK):
                chunk = [self._ip_version.element(*each) for each in own[begin : begin + CHUNK]]
                listed = b"".join(attribute(1 | NESTED, each) for each in chunk)
                place = text(1, TABLE) + text(2, name)
                yield kind, flags, place + attribute(3 | NESTED, listed)

    def _dump(self, kind: int, what: bytes) -> list[dict[int, bytes]]:
        with self._netfilter.connected() as kernel:
            found = list(netlink.asked(kernel, kind, netlink.DUMP, self._header + what))
        return [attributes(body[FAMILY.size :]) for body in found]

    def _carry_out(self, requests: Sequence[tuple[int, int, bytes]]) -> None:
        batch = [(kind, flags, self._header + body) for kind, flags, body in requests]
        with self._netfilter.connected() as kernel:
            netlink.transact(kernel, _NFTABLES, batch)

    @property
    def _header(self) -> bytes:
        return FAMILY.pack(self._ip_version.family, 0, 0)
