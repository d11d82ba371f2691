"""Connection limits of a host's TLS ports; connections over a limit get no handshake. Pure."""

import ipaddress
import resource
from collections import Counter
from dataclasses import dataclass

FILES_EACH = 4
"""Open files budgeted per connection: two for itself, two for sessions, logs and the engine."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of connections, and timeouts in seconds."""

    total: int = 4096
    per_port: int = 1024
    per_address: int = 128
    handshakes: int = 512
    """In progress; a new one replaces the oldest, so that idle clients cannot block others."""
    handshake: float = 10.0
    dial: float = 5.0  # For a container on this host, which accepts immediately or never
    half_closed: float = 60.0
    """Like tcp_fin_timeout, the kernel's default for half-closed connections."""
    unread: float = 120.0
    """For a player to acknowledge data (TCP_USER_TIMEOUT); as long as keepalive takes."""
    linger: float = 5.0  # For a game's last data to be delivered after its session has ended


class Gate:
    """Counts connections in total, per port and per client address."""

    def __init__(self, limits: Limits) -> None:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._limits = limits
        self._total = limits.total if files < 0 else min(limits.total, files // FILES_EACH)
        self._counts: Counter[int | str | None] = Counter()  # By port, caller, and None for all

    @property
    def open(self) -> int:
        """Number of connections that are admitted and not released."""
        return self._counts[None]

    def refusal(self, port: int, address: str) -> str:
        """Admit and count a connection (""), or return the limit that is reached."""
        caller = caller_of(address)
        counts = self._counts
        if counts[None] >= self._total:
            return "this host's"
        if counts[port] >= self._limits.per_port:
            return "the port's"
        if counts[caller] >= self._limits.per_address:
            return "the address's"
        counts.update((None, port, caller))
        return ""

    def release(self, port: int, address: str) -> None:
        """Stop counting a connection."""
        for key in (None, port, caller_of(address)):
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]


def caller_of(address: str) -> str:
    """Return the unit that is counted: an IPv4 address, or the IPv6 /64 of a host."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    mapped = ip.ipv4_mapped if ip.version == 6 else None
    if ip.version == 4 or mapped:
        return str(mapped or ip)
    return str(ipaddress.ip_network((ip, 64), strict=False))
