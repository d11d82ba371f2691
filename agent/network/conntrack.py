"""Flushes connection tracking entries of UDP flows to a host port that is published.

The kernel routes a UDP flow once, at its first datagram. A player who was sending before the
engine had published the port would be routed past the container, or to a former one, until the
flow's entry is deleted, which needs CAP_NET_ADMIN. All entries of a port are deleted while its
container waits: no game has used it yet.
"""

import asyncio
import contextlib
import errno
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from agent.domain.sessions.session import Port
from agent.network import netlink
from agent.network.netlink import NESTED, Netfilter, attribute, attributes
from tiltyard.contract import Protocol
from tiltyard.runtime.batches import Batches
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import Threads

log = get_logger(__name__)

WAIT_SECONDS = 2.0  # Maximum delay of a start; a list with 220,000 entries takes 0.15 s

FEW_FLOWS = 5_000
"""Up to here, listing all flows takes less time than listing those to one port for each family.

For a list, the kernel locks each bucket of its table (10 ms for 262,144), whatever it filters; to
delete flows that match a filter it takes 0.2 to 1 ms.
"""

_NO_FILTER = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
"""Answers of kernels before 6.11, which need the whole tuple of a flow to delete it."""

_COUNT = Path("/proc/sys/net/netfilter/nf_conntrack_count")

_CONNTRACK = 1 << 8  # The subsystem, in the upper byte of a message's type
_GET = _CONNTRACK | 1
_DELETE = _CONNTRACK | 2
_FAMILY = struct.Struct("=BxH")  # Address family, version 0, resource 0

_ORIGINAL = 1  # CTA_TUPLE_ORIG: addresses from the sender's view
_REPLY = 2  # CTA_TUPLE_REPLY: addresses from the receiver's view
_STATUS = 3  # CTA_STATUS
_ID = 12  # CTA_ID
_FILTER = 25  # CTA_FILTER
_STATUS_MASK = 26  # CTA_STATUS_MASK
_TRANSPORT = 2
_NUMBER = 1  # CTA_PROTO_NUM
_FROM_PORT = 2  # CTA_PROTO_SRC_PORT
_TO_PORT = 3  # CTA_PROTO_DST_PORT
_ORIGINAL_FLAGS = 1  # CTA_FILTER_ORIG_FLAGS
_REPLY_FLAGS = 2  # CTA_FILTER_REPLY_FLAGS
_BY_NUMBER = 1 << 3  # CTA_FILTER_F_CTA_PROTO_NUM; those of the ports follow
_SOURCE_TRANSLATED = 1 << 4  # IPS_SRC_NAT


class Flows(NamedTuple):
    """The UDP flows with a port, in one of the tuples of their entries, and a status.

    `direction`: _ORIGINAL or _REPLY; `kind`: the source or the destination; of the bits in `mask`,
    the entry has those of `status`.
    """

    direction: int
    kind: int
    port: int
    mask: int = 0
    status: int = 0

    def contain(self, entry: Mapping[int, bytes]) -> bool:
        """Whether a listed entry is one of them."""
        transport = attributes(attributes(entry[self.direction])[_TRANSPORT])
        return (
            transport[_NUMBER] == bytes([socket.IPPROTO_UDP])
            and int.from_bytes(transport[self.kind]) == self.port
            and int.from_bytes(entry[_STATUS]) & self.mask == self.status
        )

    @property
    def port_attribute(self) -> bytes:
        """The encoded port, which is part of each of their entries."""
        return attribute(self.kind, self.port.to_bytes(2))

    @property
    def filter(self) -> bytes:
        """A filter by these fields; the kernel wants a family with it."""
        transport = attribute(_NUMBER, bytes([socket.IPPROTO_UDP])) + self.port_attribute
        tuple_ = attribute(self.direction | NESTED, attribute(_TRANSPORT | NESTED, transport))
        mask = attribute(_STATUS_MASK, self.mask.to_bytes(4))
        status = attribute(_STATUS, self.status.to_bytes(4)) + mask if self.mask else b""
        fields = struct.pack("=I", _BY_NUMBER | 1 << self.kind + 2)
        none = bytes(4)
        original, reply = (fields, none) if self.direction == _ORIGINAL else (none, fields)
        flags = attribute(_ORIGINAL_FLAGS, original) + attribute(_REPLY_FLAGS, reply)
        return tuple_ + status + attribute(_FILTER | NESTED, flags)


def flows_of(port: int) -> list[Flows]:
    """The flows to a host port, and those of docker-proxy from it.

    A flow of docker-proxy would keep a player's next datagrams away from the container. A
    container's own flows may have the same port, but are translated.
    """
    return [
        Flows(_ORIGINAL, _TO_PORT, port),
        Flows(_ORIGINAL, _FROM_PORT, port, mask=_SOURCE_TRANSLATED),
    ]


def translated_flows(port: int) -> Flows:
    """The flows of containers whose source was translated to a host port."""
    return Flows(_REPLY, _TO_PORT, port, mask=_SOURCE_TRANSLATED, status=_SOURCE_TRANSLATED)


class Conntrack:
    """Flushes flows on its own thread, for all starts that wait at once, and records failures."""

    def __init__(self) -> None:
        self._netfilter = Netfilter()
        self._threads = Threads(1, "conntrack")
        self._batches = Batches[list[Flows], None](self._forget_all, "conntrack")
        self.failures = 0  # Failures since the agent started
        self.warnings: tuple[str, ...] = ()
        """Warnings for the host's report; empty after a success."""

    async def forget(self, ports: Sequence[Port]) -> None:
        """Flush flows of the UDP ports among `ports`, IPv4 and IPv6. Best effort.

        No game may be using them.
        """
        numbers = {port.host for port in ports if port.protocol is Protocol.UDP}
        if not numbers:
            return
        flows = [flows for number in numbers for flows in flows_of(number)]
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._batches.add(flows)
        except OSError as error:  # TimeoutError is one
            self._failed(error.strerror or "the kernel does not answer in time")
        except Exception:
            # Flows of other sessions are in the same batch.
            log.exception("cannot flush connection tracking: internal error")
            self._failed("internal error")
        else:
            self.warnings = ()

    async def close(self) -> None:
        """Wait for the work in progress, which is bounded by deadlines."""
        await self._batches.finish()
        await self._threads.close()
        self._netfilter.close()

    async def _forget_all(self, waiting: list[list[Flows]]) -> list[None]:
        flows = sorted({one for flows in waiting for one in flows})
        await self._threads.run(self._forget, flows)
        return [None] * len(waiting)

    def _forget(self, flows: Sequence[Flows]) -> None:
        with self._netfilter.connected() as kernel:
            forget_by(kernel, flows)

    def _failed(self, cause: str) -> None:
        self.failures += 1
        warning = (
            f"cannot flush connection tracking of UDP ports (CAP_NET_ADMIN): {cause}; players of "
            "a port's last session may be unable to reach its next one"
        )
        if warning not in self.warnings:
            log.warning("connection tracking of UDP ports is not flushed", error=warning)
        self.warnings = (warning,)


def forget_by(kernel: socket.socket, flows: Sequence[Flows]) -> None:
    """Delete the flows by filter, or from a list if the kernel cannot. Blocks; raises OSError."""
    families = [(one, family) for one in flows for family in (socket.AF_INET, socket.AF_INET6)]
    try:
        for one, family in families:
            _delete(kernel, family, one.filter)
    except OSError as error:
        if error.errno not in _NO_FILTER:
            raise
    else:
        return
    if _count() <= FEW_FLOWS:
        forget_listed(kernel, socket.AF_UNSPEC, flows)
        return
    for one, family in families:
        forget_listed(kernel, family, [one], one.filter)


def _delete(kernel: socket.socket, family: int, match: bytes) -> None:
    for _ in netlink.asked(kernel, _DELETE, netlink.ACK, _FAMILY.pack(family, 0) + match):
        pass


def forget_listed(
    kernel: socket.socket, family: int, flows: Sequence[Flows], match: bytes = b""
) -> None:
    """List entries and delete those of the flows; entries that are already gone are ignored.

    Kernels before 5.8 ignore `match` and list everything, so entries are matched here as well.
    """
    marks = [one.port_attribute for one in flows]
    header = _FAMILY.pack(family, 0)
    listed = netlink.asked(kernel, _GET, netlink.DUMP, header + match)
    found = [entry for entry in listed if any(mark in entry for mark in marks)]
    for encoded in found:
        entry = attributes(encoded[_FAMILY.size :])
        if not any(one.contain(entry) for one in flows):
            continue
        match = attribute(_ORIGINAL | NESTED, entry[_ORIGINAL]) + attribute(_ID, entry[_ID])
        with contextlib.suppress(FileNotFoundError):
            _delete(kernel, encoded[0], match)


def _count() -> int:
    with contextlib.suppress(FileNotFoundError):  # connection tracking is not active yet
        return int(_COUNT.read_text())
    return 0
