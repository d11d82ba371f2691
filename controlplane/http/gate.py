"""The gate of the HTTP API: limits of connections, and the address of a caller behind a proxy.

What is over a cap is closed at once: an answer would cost the TLS handshake that it saves.
"""

import asyncio
import socket
from collections import Counter
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Self

from controlplane.metrics.http import HttpMetrics, ListenerMetrics
from controlplane.settings.model import Config, Network
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

UNSENT = 128 * 1024
"""Bytes of an answer that wait in the kernel for a slow reader: its default of 4 MiB would delay
the notice that the reader takes more."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a listener's connections."""

    total: int
    per_address: int
    proxies: tuple[Network, ...] = ()
    proxies_only: bool = False
    """Refuse other peers, apart from loopback."""

    @classmethod
    def of_api(cls, config: Config) -> Self:
        """Give those of the HTTP API."""
        proxies = config.proxies()
        return cls(
            total=config.max_connections,
            per_address=config.max_connections_per_address,
            proxies=proxies,
            proxies_only=bool(proxies) and not config.tls_certificate,
        )


class Gate:
    """Counts what is open, in total and per caller. Behind a proxy a caller is not a connection.

    A trusted proxy's connections count in total only; each request under way through them counts
    as one of the caller's. Without TLS only the proxies and loopback get in, so that no
    token crosses a network in clear.
    """

    def __init__(self, bounds: Bounds, metrics: ListenerMetrics | None = None) -> None:
        self._bounds = bounds
        self._metrics = metrics or HttpMetrics().listener("")
        self._open = 0
        self._taken: Counter[str] = Counter()

    def trusts(self, address: str) -> bool:
        """Return whether an address is a trusted proxy's."""
        ip = _ip(address)
        return any(ip in network for network in self._bounds.proxies)

    def caller(self, peer: str, forwarded: list[str]) -> str:
        """Give the right-most address of X-Forwarded-For that is no trusted proxy's.

        What stands left of it is the caller's own claim. The peer, where it is no trusted proxy.
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
        """Count a connection, unless it is one too many or may not come in."""
        trusted = self.trusts(peer)
        barred = self._bounds.proxies_only and not trusted and not _ip(peer).is_loopback
        if self._open >= self._bounds.total or barred or not (trusted or self.take(peer)):
            self._metrics.turned_away.inc()
            return False
        self._open += 1
        self._metrics.is_open.inc()
        return True

    def release(self, peer: str) -> None:
        """Count a connection no more."""
        self._open -= 1
        self._metrics.is_open.dec()
        if not self.trusts(peer):
            self.give(peer)

    def take(self, address: str) -> bool:
        """Count one more of a caller, unless it is one too many."""
        caller = _caller(address)
        if self._taken[caller] >= self._bounds.per_address:
            return False
        self._taken[caller] += 1
        return True

    def give(self, address: str) -> None:
        """Count one less of a caller."""
        caller = _caller(address)
        self._taken[caller] -= 1
        if not self._taken[caller]:
            del self._taken[caller]


class _Accepted(socket.socket):
    """A connection's socket: counted until it is closed, whatever it was used for until then."""

    gate: Gate
    peer: str

    def close(self) -> None:
        if self.fileno() != -1:
            self.gate.release(self.peer)
        super().close()


class _Listener(socket.socket):
    """A listening socket that closes at once what the gate does not admit."""

    gate: Gate

    def accept(self) -> tuple[_Accepted, Any]:
        sock, address = super().accept()
        if not self.gate.admit(address[0]):
            sock.close()
            log.debug("connection over the cap, or of no proxy, closed", address=address[0])
            raise ConnectionAbortedError
        accepted = _Accepted(sock.family, sock.type, sock.proto, sock.detach())
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
        accepted.gate, accepted.peer = self.gate, address[0]
        return accepted, address


async def listen(host: str, port: int, gate: Gate) -> list[_Listener]:
    """Listen on every usable address of a host; an empty one means all of the machine."""
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
    """Read an address as it may be written: with a zone, a port or brackets, or mapped."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    ip = ip_address(text.partition("%")[0])
    return (ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else ip


def _caller(address: str) -> str:
    """Give what a cap counts as one: an IPv4 address, or the /64 that any IPv6 host has."""
    ip = _ip(address)
    return str(ip) if ip.version == 4 else str(ip_network((ip, 64), strict=False))
