"""Finds the owner of a port in the host's network by sock_diag.

The kernel reports the control group in which a socket was created, and each container has its own.
Unlike reading open files in /proc, this needs no capability.
"""

import ipaddress
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent.kernel.control_groups import UNIFIED, control_groups
from agent.network import netlink
from tiltyard.contract import Protocol

ANSWER_SECONDS = 2.0
ANY_PORT = 0
_NETLINK_SOCK_DIAG = 4
_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY
_REQUEST = struct.Struct("=BBxxIHxx44x")
"""inet_diag_req_v2 with sockid: family, protocol, states, local port in network byte order."""
_ANSWER = struct.Struct("=4xHxx16s48x")  # inet_diag_msg: the local port, the local address
_CGROUP_ID = 21  # INET_DIAG_CGROUP_ID: cgroup v2, since Linux 5.8
_GROUP = struct.Struct("=Q")
_KINDS = {Protocol.TCP: (socket.IPPROTO_TCP, 1 << 10), Protocol.UDP: (socket.IPPROTO_UDP, 1 << 7)}
"""Protocol number, and the state bit of TCP_LISTEN or TCP_CLOSE."""
_ADDRESS_BYTES = {socket.AF_INET: 4, socket.AF_INET6: 16}
_PROC = Path("/proc")


class TooManySocketsError(OSError):
    """The network has more sockets than one check may read."""

    def __init__(self, most: int) -> None:
        super().__init__(f"its network has more than {most} sockets")


@dataclass(frozen=True, slots=True)
class BoundSocket:
    """A receiving socket: local address (4 or 16 bytes), port, and cgroup id if reported."""

    address: bytes
    port: int
    group: int | None


def is_bound_by(
    group: int | None, protocol: Protocol, port: int, *, loopback: bool, most: int
) -> bool:
    """Return whether a socket of a control group has bound a port of this network. Blocks.

    It must be reachable by players or, with `loopback`, by the agent. If the kernel does not
    report control groups, any owner of the port counts: it was free when the session got it.

    Raises OSError, and TooManySocketsError if none of the first `most` sockets matches.
    """
    is_there = is_local if loopback else is_reachable
    for seen, found in enumerate(sockets_on(protocol, port)):
        if seen >= most:
            raise TooManySocketsError(most)
        if is_there(found.address) and (None in {group, found.group} or found.group == group):
            return True
    return False


def sockets_on(protocol: Protocol, port: int) -> Iterator[BoundSocket]:
    """Yield the sockets that receive on a port of this network, or on ANY_PORT.

    Blocks; raises OSError.
    """
    number, states = _KINDS[protocol]
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(ANSWER_SECONDS)
        for family, size in _ADDRESS_BYTES.items():
            request = _REQUEST.pack(family, number, states, socket.htons(port))
            for answer in netlink.asked(kernel, _BY_FAMILY, netlink.DUMP, request):
                found, address = _ANSWER.unpack_from(answer)
                more = netlink.attributes(answer[_ANSWER.size :])
                group = _GROUP.unpack(more[_CGROUP_ID])[0] if _CGROUP_ID in more else None
                yield BoundSocket(address[:size], socket.ntohs(found), group)


def group_id_of(pid: int) -> int | None:
    """Return the cgroup v2 id of a process, its folder's inode number, or None. Blocks."""
    try:
        groups = control_groups((_PROC / str(pid) / "cgroup").read_text())
    except OSError:
        return None
    unified = [group for group in groups if group.controller == UNIFIED and group.path]
    for group in unified:
        for folder in group.folders():
            with suppress(OSError):
                return folder.stat().st_ino
    return None


def is_reachable(address: bytes) -> bool:
    """Return whether an address of 4 or 16 bytes is not a loopback address."""
    return not _ip(address).is_loopback


def is_local(address: bytes) -> bool:
    """Return whether 127.0.0.1 reaches the address; the agent forwards TLS ports there."""
    return _ip(address).is_unspecified or _ip(address) == ipaddress.ip_address("127.0.0.1")


def _ip(address: bytes) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    ip = ipaddress.ip_address(address)
    return (ip.ipv4_mapped or ip) if isinstance(ip, ipaddress.IPv6Address) else ip
