"""Connection limits of the HTTP API, and the address of a caller behind a proxy.

Connections over a cap are closed without a response, which would cost a TLS handshake.
"""

import asyncio
import socket
from collections import Counter
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Self

from controlplane.domain.addresses import Network
from controlplane.metrics.http import HttpMetrics
from controlplane.settings.model import Config
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

UNSENT = 128 * 1024
"""Unsent bytes in the kernel; its default of 4 MiB would hide the progress of a slow reader."""

READ = 16 * 1024
"""Bytes of one read; asyncio's 256 KiB would be a connection's share of memory before its token is
checked."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a listener's connections."""

    total: int
    per_address: int
    proxies: tuple[Network, ...] = ()
    proxies_only: bool = False  # Refuse other peers, apart from loopback

    @classmethod
    def of_api(cls, config: Config) -> Self:
        """Return the limits of the HTTP API."""
        proxies = config.proxies()
        return cls(
            total=config.max_connections,
            per_address=config.max_connections_per_address,
            proxies=proxies,
            proxies_only=bool(proxies) and not config.tls_certificate,
        )


class Gate:
    """Counts open connections, in total and per caller.

    A trusted proxy's connections count in total only; each request in progress through it counts
    for its caller. With proxies but without TLS, only proxies and loopback are admitted, so that
    no token crosses a network in clear text.
    """

    def __init__(
        self, bounds: Bounds, metrics: HttpMetrics | None = None, listener: str = ""
    ) -> None:
        self._bounds = bounds
        metrics = metrics or HttpMetrics()
        self._is_open = metrics.connections.labels(listener)
        self._turned_away = metrics.turned_away.labels(listener)
        self._open = 0
        self._taken: Counter[str] = Counter()

    def trusts(self, address: str) -> bool:
        """Return whether an address is a trusted proxy's."""
        ip = _ip(address)
        return any(ip in network for network in self._bounds.proxies)

    def caller(self, peer: str, forwarded: list[str]) -> str:
        """Return the right-most address of X-Forwarded-For that is not a trusted proxy's.

        Entries left of it are not verified. The peer itself unless it is a trusted proxy.
        """
        address = peer
        for entry in reversed(",".join(forwarded).split(",")):
            if not self.trusts(address):
                break
            try:
                address = str(_ip(entry.strip()))
            except ValueError:
                break
        return address

    def admit(self, peer: str) -> bool:
        """Count a connection; False if it is over a cap or not allowed."""
        trusted = self.trusts(peer)
        barred = self._bounds.proxies_only and not trusted and not _ip(peer).is_loopback
        if self._open >= self._bounds.total or barred or not (trusted or self.take(peer)):
            self._turned_away.inc()
            return False
        self._open += 1
        self._is_open.inc()
        return True

    def release(self, peer: str) -> None:
        """Stop counting a connection."""
        self._is_open.dec()
        self.drop(peer)

    def keep(self, peer: str) -> None:
        """Keep the place of a connection that ends, for its request that continues."""
        self._open += 1
        if not self.trusts(peer):
            self._taken[_caller(peer)] += 1

    def drop(self, peer: str) -> None:
        """Give up the place of a connection."""
        self._open -= 1
        if not self.trusts(peer):
            self.give(peer)

    def take(self, address: str) -> bool:
        """Count one more for a caller; False if that is over the cap."""
        caller = _caller(address)
        if self._taken[caller] >= self._bounds.per_address:
            return False
        self._taken[caller] += 1
        return True

    def give(self, address: str) -> None:
        """Undo a `take`."""
        caller = _caller(address)
        self._taken[caller] -= 1
        if not self._taken[caller]:
            del self._taken[caller]


class _Accepted(socket.socket):
    """A connection's socket, counted until it is closed; reads a little at a time."""

    gate: Gate
    peer: str

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        return super().recv(min(bufsize, READ), flags)

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        return super().recv_into(buffer, min(nbytes or len(buffer), READ), flags)

    def close(self) -> None:
        if self.fileno() != -1:
            self.gate.release(self.peer)
        super().close()


class _Listener(socket.socket):
    """A listening socket that closes connections that the gate rejects."""

    gate: Gate

    def accept(self) -> tuple[_Accepted, Any]:
        sock, address = super().accept()
        if not self.gate.admit(address[0]):
            sock.close()
            log.debug("connection closed: over the limit, or not from a proxy", address=address[0])
            raise ConnectionAbortedError
        accepted = _Accepted(sock.family, sock.type, sock.proto, sock.detach())
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
        accepted.gate = self.gate
        accepted.peer = address[0]
        return accepted, address


async def listen(host: str, port: int, gate: Gate) -> list[_Listener]:
    """Listen on every usable address of a host; an empty host means all addresses."""
    found: list[_Listener] = []
    failed: OSError | None = None
    loop = asyncio.get_running_loop()
    for family, _, _, _, address in await loop.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    ):
        try:
            bound = socket.create_server(address, family=family)
        except OSError as error:
            failed = error
            continue
        listener = _Listener(fileno=bound.detach())
        listener.gate = gate
        listener.setblocking(False)
        found.append(listener)
    if not found and failed is not None:
        raise failed
    return found


def _ip(text: str) -> IPv4Address | IPv6Address:
    """Parse an address with an optional zone, port or brackets; unmap mapped IPv4."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    ip = ip_address(text.partition("%")[0])
    return (ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else ip


def _caller(address: str) -> str:
    """Return the key of the per-caller cap: an IPv4 address or an IPv6 /64."""
    ip = _ip(address)
    return str(ip) if ip.version == 4 else str(ip_network((ip, 64), strict=False))
