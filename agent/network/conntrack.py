"""Flushes connection tracking entries of UDP flows to a host port that is published.

The kernel routes a UDP flow once, at its first datagram. A player who was sending before the
container started would be routed past it until the flow's entry is deleted, which needs
CAP_NET_ADMIN.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence

from agent.domain.session import Port
from agent.network import netlink
from agent.network.netlink import NESTED, attribute, attributes
from tiltyard.contract import Protocol
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import Threads

log = get_logger(__name__)

WAIT_SECONDS = 2.0
"""Maximum delay of a start; a port in a table of 220,000 entries takes 0.15 s."""

_NETLINK_NETFILTER = 12
_CONNTRACK = 1 << 8
"""The subsystem, in the upper byte of a message's type."""
_GET, _DELETE = _CONNTRACK | 1, _CONNTRACK | 2
_FAMILY = struct.Struct("=BxH")
"""Address family, version 0, resource 0."""

_ORIGINAL, _ID, _FILTER = 1, 12, 25
"""CTA_TUPLE_ORIG (addresses from the sender's view), CTA_ID, CTA_FILTER."""
_TRANSPORT = 2
_NUMBER, _TO_PORT = 1, 3
"""CTA_PROTO_NUM and CTA_PROTO_DST_PORT."""
_ORIGINAL_FLAGS, _REPLY_FLAGS = 1, 2
_BY_NUMBER_AND_TO_PORT = 1 << 3 | 1 << 5


class Conntrack:
    """Flushes flows on its own thread, and records failures."""

    def __init__(self) -> None:
        self._threads = Threads(1, "conntrack")
        self.failures = 0
        """Failures since the agent started."""
        self.warnings: tuple[str, ...] = ()
        """Warnings for the host's report; empty after a success."""

    async def forget(self, ports: Sequence[Port]) -> None:
        """Flush all flows to the UDP ports among `ports`, IPv4 and IPv6. Best effort."""
        numbers = sorted({port.host for port in ports if port.protocol is Protocol.UDP})
        if not numbers:
            return
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._threads.run(forget_udp_flows, numbers)
        except OSError as error:  # TimeoutError is one
            self._failed(error.strerror or "the kernel does not answer in time")
        else:
            self.warnings = ()

    async def close(self) -> None:
        """Wait for the work in progress, which is bounded by deadlines."""
        await self._threads.close()

    def _failed(self, cause: str) -> None:
        self.failures += 1
        warning = (
            f"cannot flush connection tracking of UDP ports (CAP_NET_ADMIN): {cause}; players of "
            "a port's last session may be unable to reach its next one"
        )
        if warning not in self.warnings:
            log.warning("connection tracking of UDP ports is not flushed", error=warning)
        self.warnings = (warning,)


def forget_udp_flows(ports: Iterable[int]) -> None:
    """Delete all UDP flows to the ports in this network namespace. Blocks; raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as kernel:
        kernel.settimeout(WAIT_SECONDS)
        for port in ports:
            for family in (socket.AF_INET, socket.AF_INET6):
                forget_flows(kernel, family, port)


def forget_flows(kernel: socket.socket, family: int, port: int) -> None:
    """List the matching flows and delete each by its id; flows that are already gone are ignored.

    Kernels before 5.8 ignore the filter and list everything, so entries are matched here as well.
    """
    listed = _request(kernel, _GET, netlink.DUMP, family, _match(port))
    for entry in [entry for entry in map(attributes, listed) if _is_udp_to(entry, port)]:
        one = attribute(_ORIGINAL | NESTED, entry[_ORIGINAL]) + attribute(_ID, entry[_ID])
        with contextlib.suppress(FileNotFoundError):
            for _ in _request(kernel, _DELETE, netlink.ACK, family, one):
                pass


def _match(port: int) -> bytes:
    transport = attribute(_NUMBER, bytes([socket.IPPROTO_UDP])) + attribute(
        _TO_PORT, port.to_bytes(2)
    )
    flags = attribute(_ORIGINAL_FLAGS, struct.pack("=I", _BY_NUMBER_AND_TO_PORT)) + attribute(
        _REPLY_FLAGS, struct.pack("=I", 0)
    )
    original = attribute(_TRANSPORT | NESTED, transport)
    return attribute(_ORIGINAL | NESTED, original) + attribute(_FILTER | NESTED, flags)


def _is_udp_to(entry: Mapping[int, bytes], port: int) -> bool:
    transport = attributes(attributes(entry[_ORIGINAL])[_TRANSPORT])
    wanted = {_NUMBER: bytes([socket.IPPROTO_UDP]), _TO_PORT: port.to_bytes(2)}
    return wanted.items() <= transport.items()


def _request(
    kernel: socket.socket, kind: int, flags: int, family: int, body: bytes
) -> Iterator[bytes]:
    """Send one request and yield the attributes of each message of the response."""
    for answer in netlink.asked(kernel, kind, flags, _FAMILY.pack(family, 0) + body):
        yield answer[_FAMILY.size :]
