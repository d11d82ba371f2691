"""What settings point to on this machine: folders, files, addresses and ports. Blocks."""

import errno
import ipaddress
import os
import socket
import stat
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from tiltyard.runtime.settings.mistakes import Mistake

_OTHERS = stat.S_IRWXO
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - they are read, not bound
_ALIASES = {"": _EVERYWHERE, "::": _EVERYWHERE, "localhost": ("127.0.0.1", "::1")}
"""What a listener there takes; `::` may be that of both families."""


def folder(key: str, path: Path) -> Iterator[Mistake]:
    """Look whether this user may write in a folder, or make it."""
    nearest = path
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        yield Mistake((key,), f"{nearest} is no folder", "name another, or move it away")
    elif not os.access(nearest, os.W_OK | os.X_OK):
        problem = f"this user may not write in {nearest}"
        yield Mistake(
            (key,), problem, "chown it to who serves, or check as who serves", is_warning=True
        )


def private_key(key: str, path: Path) -> Iterator[Mistake]:
    """Check whether all users of the machine can read a private key."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # who loads it says so
    if mode & _OTHERS:
        problem = f"all users can read {path}: mode {stat.S_IMODE(mode):04o}"
        yield Mistake((key,), problem, f"chmod 0640 {path}, and replace it", is_warning=True)


def address(key: str, host: str) -> Iterator[Mistake]:
    """Look whether an address is one of this machine's."""
    try:
        is_ipv6 = ipaddress.ip_address(host).version == 6
    except ValueError:
        if host not in {"", "localhost"}:  # nothing is every address
            problem, hint = f"{host} is a name", "write an address, or a service may not come up"
            yield Mistake((key,), problem, hint, is_warning=True)
        return
    family = socket.AF_INET6 if is_ipv6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                return
            problem, hint = f"{host} is no address of this machine", "see `ip address`"
            yield Mistake((key,), problem, hint, is_warning=True)


def listeners(addresses: Mapping[str, tuple[str, int]]) -> Iterator[Mistake]:
    """Look whether two listeners, by their keys, want the same port; 0 is any that is free."""
    by_port: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for key, (host, port) in addresses.items():
        for other, other_host in by_port[port]:
            if port and _meets(host, other_host):
                problem = f"port {port} is that of {other} as well"
                yield Mistake((key,), problem, "give each a port of its own")
                break
        by_port[port].append((key, host))


def _meets(host: str, other: str) -> bool:
    """Return whether no two listeners can have one port of these."""
    return host == other or any(
        one == two or (one.version == two.version and (one.is_unspecified or two.is_unspecified))
        for one in _addresses(host)
        for two in _addresses(other)
    )


def _addresses(host: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    try:
        return [ipaddress.ip_address(each) for each in _ALIASES.get(host, (host,))]
    except ValueError:  # a name, whose addresses may change
        return []
