"""DNS resolver for registries: separate threads, optionally public addresses only."""

import asyncio
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from aiohttp.abc import AbstractResolver, ResolveResult

THREADS = 64
"""Lookups of one name are shared, so an unresponsive DNS server blocks one thread per name."""

_Addresses: TypeAlias = list[tuple[socket.AddressFamily, int, str]]  # Family, protocol, address

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NOT_PUBLIC = tuple(
    map(
        ipaddress.ip_network,
        (
            "192.0.0.0/24",  # IETF protocol assignments, such as DS-Lite
            "::/96",  # IPv4-compatible IPv6 (deprecated), and ::1
            "64:ff9b:1::/48",  # local-use NAT64
            "fec0::/10",  # site-local (deprecated)
        ),
    )
)
"""Non-public networks that `ipaddress` reports as global in some Python releases."""


class LookUps:
    """Runs DNS lookups on its own threads and shares those in progress."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, "registry names")
        self._running: dict[str, asyncio.Future[_Addresses]] = {}

    async def addresses(self, host: str) -> _Addresses:
        """Look up a name, or join a lookup in progress. Raises as `socket.getaddrinfo`."""
        found = self._running.get(host)
        if found is None:
            loop = asyncio.get_running_loop()
            found = loop.run_in_executor(self._pool, look_up, host)
            found.add_done_callback(lambda _: self._running.pop(host, None))
            self._running[host] = found
        return await asyncio.shield(found)

    def close(self) -> None:
        """Abandon running lookups: `getaddrinfo` cannot be cancelled. Idempotent."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for found in self._running.values():
            found.cancel()


def look_up(host: str) -> _Addresses:
    """Resolve with the operating system. Blocks."""
    infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [(family, protocol, _with_zone(address)) for family, _, protocol, _, address in infos]


def _with_zone(address: tuple[Any, ...]) -> str:
    """Format an address with its zone, which link-local ones need."""
    zone = address[3] if len(address) == 4 else 0
    return f"{address[0]}%{zone}" if zone else str(address[0])


class Resolver(AbstractResolver):
    """aiohttp resolver. `only_public`: fails if any address of a name is not public."""

    def __init__(self, look_ups: LookUps, *, only_public: bool) -> None:
        self._look_ups = look_ups
        self._only_public = only_public

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        """Resolve a name."""
        found = await self._look_ups.addresses(host)
        for _, _, address in found:
            if self._only_public and not is_public(address):
                raise OSError(None, f"{host} resolves to {address}, which is not public")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, protocol, address in found
        ]

    async def close(self) -> None:
        """Do nothing: `LookUps` owns the threads."""


def is_public(address: str) -> bool:
    """Return whether an address, or the IPv4 address it embeds, is on the public internet."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        ip = _embedded_ipv4(ip) or ip
    if any(ip in network for network in _NOT_PUBLIC):
        return False
    return ip.is_global and not ip.is_multicast


def _embedded_ipv4(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if ip in _NAT64:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour
