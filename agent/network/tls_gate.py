"""How many connections the TLS ports of a host may have. Pure.

Connections beyond a limit are closed before their handshake. Handshakes in progress have a limit
of their own, at which a new one replaces the oldest, so that idle clients block nobody.
"""

import ipaddress
import resource
from collections import Counter
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

FILES_EACH = 4
"""Of the agent's open files, for each connection that it may have: two are taken, and as many are
left for sessions, logs and the engine."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of connections, and of their time in seconds. Tests take smaller ones."""

    total: int = 4096
    per_port: int = 1024
    per_address: int = 128
    handshakes: int = 512
    handshake: float = 10.0
    dial: float = 5.0
    """For a container on this host, which answers at once or not at all."""
    half_closed: float = 60.0
    """As long as the kernel keeps half of a connection whose program has closed it
    (tcp_fin_timeout)."""
    unread: float = 120.0
    """For a player to take some of what waits, or the game could never hang up on one who does
    not; as long as one who is gone takes to be found."""
    linger: float = 5.0
    """For what a game sent last to get through, once its session has ended."""


class Gate:
    """Counts connections: in total, of each port, of each address."""

    def __init__(self, limits: Limits) -> None:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._limits = limits
        self._total = limits.total if files < 0 else min(limits.total, files // FILES_EACH)
        self._by_port: Counter[int] = Counter()
        self._by_caller: Counter[str] = Counter()
        self.open = 0
        """Connections that were admitted and not released."""

    def refusal(self, port: int, address: str) -> str:
        """Admit and count a connection, or say which bound it is over."""
        caller = caller_of(address)
        if self.open >= self._total:
            return "this host's"
        if self._by_port[port] >= self._limits.per_port:
            return "the port's"
        if self._by_caller[caller] >= self._limits.per_address:
            return "the address's"
        self.open += 1
        self._by_port[port] += 1
        self._by_caller[caller] += 1
        return ""

    def release(self, port: int, address: str) -> None:
        """Count a connection no more."""
        self.open -= 1
        _count_less(self._by_port, port)
        _count_less(self._by_caller, caller_of(address))


def _count_less(counter: Counter[T], counted: T) -> None:
    """One less; what has come to nothing is dropped, at no cost for the others."""
    counter[counted] -= 1
    if not counter[counted]:
        del counter[counted]


def caller_of(address: str) -> str:
    """What counts as one address: of IPv4 itself, of IPv6 the /64 that any host has."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    mapped = ip.ipv4_mapped if ip.version == 6 else None
    if ip.version == 4 or mapped:
        return str(mapped or ip)
    return str(ipaddress.ip_network((ip, 64), strict=False))
