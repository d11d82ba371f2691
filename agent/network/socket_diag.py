"""Who has a port of the host's own network, asked of the kernel.

The kernel says of a socket in which control group it was made, and each container has one of its
own. This takes no capability, unlike the open files of processes in /proc.
"""

import ipaddress
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent.network import netlink
from tiltyard.contract import Protocol

ANSWER_SECONDS = 2.0
_NETLINK_SOCK_DIAG = 4
_BY_FAMILY = 20
"""SOCK_DIAG_BY_FAMILY."""
_REQUEST = struct.Struct("=BBxxIHxx44x")
"""inet_diag_req_v2 and its sockid: family, protocol, states, local port as on the wire."""
_ANSWER = struct.Struct("=4xHxx16s48x")
"""inet_diag_msg: the local port, the local address."""
_CGROUP_ID = 21
"""INET_DIAG_CGROUP_ID: the control group of version 2, since Linux 5.8."""
_GROUP = struct.Struct("=Q")
_KINDS = {
    Protocol.TCP: (socket.IPPROTO_TCP, 1 << 10),
    Protocol.UDP: (socket.IPPROTO_UDP, 1 << 7),
}
"""The number of the protocol, and TCP_LISTEN or TCP_CLOSE in a set of states."""
_ADDRESS_BYTES = {socket.AF_INET: 4, socket.AF_INET6: 16}
_PROC = Path("/proc")
_CGROUP_ROOTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
"""Where version 2 is mounted: alone, or beside version 1."""


class TooManySocketsError(OSError):
    """A look ended without a result: there are more sockets than one look may read."""

    def __init__(self, most: int) -> None:
        super().__init__(f"its network has more than {most} sockets")


@dataclass(frozen=True, slots=True)
class BoundSocket:
    """A socket that takes what comes to its port; `group` is None where the kernel does not say.

    `address` is the local one, 4 or 16 bytes.
    """

    address: bytes
    port: int
    group: int | None


def is_bound_by(
    group: int | None,
    protocol: Protocol,
    port: int,
    *,
    loopback: bool,
    most: int,
) -> bool:
    """Return whether a socket of a control group has a port of this network. Blocks.

    It must be where players reach it, or, with `loopback`, where the agent does. If the kernel
    does not report control groups, any owner of the port counts: it was free when the session got
    it.

    Raises:
        OSError: The kernel does not answer.
        TooManySocketsError: None of the first `most` sockets of the port is the one.
    """
    is_there = is_local if loopback else is_reachable
    for seen, found in enumerate(sockets_on(protocol, port)):
        if seen >= most:
            raise TooManySocketsError(most)
        if is_there(found.address) and (None in {group, found.group} or found.group == group):
            return True
    return False


def sockets_on(protocol: Protocol, port: int) -> Iterator[BoundSocket]:
    """All sockets that take what comes to a port of this network namespace. Blocks.

    Raises:
        OSError: The kernel does not answer.
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


def group_of(pid: int) -> int | None:
    """The control group of version 2 that a process is in; None where there is none. Blocks.

    Its id is the number of its folder's inode.
    """
    try:
        lines = (_PROC / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    path = next((line[len("0::/") :] for line in lines if line.startswith("0::/")), "")
    for root in _CGROUP_ROOTS if path else ():
        with suppress(OSError):
            return (root / path).stat().st_ino
    return None


def is_reachable(address: bytes) -> bool:
    """False for a loopback address, given its 4 or 16 bytes."""
    return not _ip(address).is_loopback


def is_local(address: bytes) -> bool:
    """True where 127.0.0.1 is reached, where the agent passes on what came to a TLS port."""
    return _ip(address).is_unspecified or _ip(address) == ipaddress.ip_address("127.0.0.1")


def _ip(address: bytes) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    ip = ipaddress.ip_address(address)
    return (ip.ipv4_mapped or ip) if isinstance(ip, ipaddress.IPv6Address) else ip
