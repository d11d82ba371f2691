"""Flushes connection tracking entries of UDP flows to a host port that is published.

The kernel routes a UDP flow once, at its first datagram. A player who was sending before the
container started would be routed past it until the flow's entry is deleted, which needs
CAP_NET_ADMIN.
"""

import asyncio
import contextlib
import errno
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.domain.session import Port
from agent.network import netlink
from agent.network.netlink import NESTED, attribute, attributes
from tiltyard.contract import Protocol
from tiltyard.runtime.batches import Batches
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import Threads

log = get_logger(__name__)

WAIT_SECONDS = 2.0  # Maximum delay of a start; a list with 220,000 entries takes 0.15 s

FEW_FLOWS = 5_000
"""Up to here, listing all flows takes less time than listing those to one port for each family.

For a list, the kernel locks each bucket of its table (10 ms for 262,144), whatever it filters; to
delete flows that match a filter it takes 0.2 ms.
"""

_NO_FILTER = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
"""Answers of kernels before 6.11, which need the whole tuple of a flow to delete it."""

_COUNT = Path("/proc/sys/net/netfilter/nf_conntrack_count")

_NETLINK_NETFILTER = 12
_CONNTRACK = 1 << 8  # The subsystem, in the upper byte of a message's type
_GET, _DELETE = _CONNTRACK | 1, _CONNTRACK | 2
_FAMILY = struct.Struct("=BxH")  # Address family, version 0, resource 0

_ORIGINAL, _ID, _FILTER = 1, 12, 25
"""CTA_TUPLE_ORIG (addresses from the sender's view), CTA_ID, CTA_FILTER."""
_TRANSPORT = 2
_NUMBER, _TO_PORT = 1, 3  # CTA_PROTO_NUM and CTA_PROTO_DST_PORT
_ORIGINAL_FLAGS, _REPLY_FLAGS = 1, 2
_BY_NUMBER_AND_TO_PORT = 1 << 3 | 1 << 5


class Conntrack:
    """Flushes flows on its own thread, for all starts that wait at once, and records failures."""

    def __init__(self) -> None:
        self._threads = Threads(1, "conntrack")
        self._batches = Batches[list[int], None](self._forget_all, "conntrack")
        self.failures = 0  # Failures since the agent started
        self.warnings: tuple[str, ...] = ()
        """Warnings for the host's report; empty after a success."""

    async def forget(self, ports: Sequence[Port]) -> None:
        """Flush all flows to the UDP ports among `ports`, IPv4 and IPv6. Best effort."""
        numbers = sorted({port.host for port in ports if port.protocol is Protocol.UDP})
        if not numbers:
            return
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._batches.add(numbers)
        except OSError as error:  # TimeoutError is one
            self._failed(error.strerror or "the kernel does not answer in time")
        else:
            self.warnings = ()

    async def close(self) -> None:
        """Wait for the work in progress, which is bounded by deadlines."""
        await self._batches.finish()
        await self._threads.close()

    async def _forget_all(self, waiting: list[list[int]]) -> list[None]:
        ports = sorted({port for numbers in waiting for port in numbers})
        await self._threads.run(forget_udp_flows, ports)
        return [None] * len(waiting)

    def _failed(self, cause: str) -> None:
        self.failures += 1
        warning = (
            f"cannot flush connection tracking of UDP ports (CAP_NET_ADMIN): {cause}; players of "
            "a port's last session may be unable to reach its next one"
        )
        if warning not in self.warnings:
            log.warning("connection tracking of UDP ports is not flushed", error=warning)
        self.warnings = (warning,)


def forget_udp_flows(ports: Sequence[int]) -> None:
    """Delete all UDP flows to the ports in this network namespace. Blocks; raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as kernel:
        kernel.settimeout(WAIT_SECONDS)
        forget_by(kernel, ports)


def forget_by(kernel: socket.socket, ports: Sequence[int]) -> None:
    """Delete the flows by filter, or from a list where the kernel cannot."""
    families = [(port, family) for port in ports for family in (socket.AF_INET, socket.AF_INET6)]
    try:
        for port, family in families:
            _delete(kernel, family, udp_to(port))
    except OSError as error:
        if error.errno not in _NO_FILTER:
            raise
    else:
        return
    if _count() <= FEW_FLOWS:
        forget_flows(kernel, socket.AF_UNSPEC, ports)
        return
    for port, family in families:
        forget_flows(kernel, family, [port], udp_to(port))


def _delete(kernel: socket.socket, family: int, match: bytes) -> None:
    for _ in netlink.asked(kernel, _DELETE, netlink.ACK, _FAMILY.pack(family, 0) + match):
        pass


def forget_flows(
    kernel: socket.socket, family: int, ports: Sequence[int], match: bytes = b""
) -> None:
    """List flows and delete those to the ports; flows that are already gone are ignored.

    Kernels before 5.8 ignore `match` and list everything, so entries are matched here as well.
    """
    marks = [_to_port(port) for port in ports]
    header = _FAMILY.pack(family, 0)
    listed = netlink.asked(kernel, _GET, netlink.DUMP, header + match)
    found = [flow for flow in listed if any(mark in flow for mark in marks)]
    for flow in found:
        entry = attributes(flow[_FAMILY.size :])
        if not _is_udp_to(entry, ports):
            continue
        one = attribute(_ORIGINAL | NESTED, entry[_ORIGINAL]) + attribute(_ID, entry[_ID])
        with contextlib.suppress(FileNotFoundError):
            _delete(kernel, flow[0], one)


def _to_port(port: int) -> bytes:
    return attribute(_TO_PORT, port.to_bytes(2))


def _count() -> int:
    with contextlib.suppress(FileNotFoundError):  # connection tracking is not active yet
        return int(_COUNT.read_text())
    return 0


def udp_to(port: int) -> bytes:
    """A filter for UDP flows to a port; the kernel wants a family with it."""
    transport = attribute(_NUMBER, bytes([socket.IPPROTO_UDP])) + _to_port(port)
    flags = attribute(_ORIGINAL_FLAGS, struct.pack("=I", _BY_NUMBER_AND_TO_PORT)) + attribute(
        _REPLY_FLAGS, struct.pack("=I", 0)
    )
    original = attribute(_TRANSPORT | NESTED, transport)
    return attribute(_ORIGINAL | NESTED, original) + attribute(_FILTER | NESTED, flags)


def _is_udp_to(entry: Mapping[int, bytes], ports: Sequence[int]) -> bool:
    transport = attributes(attributes(entry[_ORIGINAL])[_TRANSPORT])
    is_udp = transport[_NUMBER] == bytes([socket.IPPROTO_UDP])
    return is_udp and int.from_bytes(transport[_TO_PORT]) in ports
