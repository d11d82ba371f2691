"""Names of registries: looked up on threads of their own, public addresses apart from others."""

import asyncio
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from aiohttp.abc import AbstractResolver, ResolveResult

THREADS = 64
"""A name is looked up once at a time, so that unresponsive servers of one hold one thread."""

_Found: TypeAlias = list[tuple[socket.AddressFamily, int, str]]
"""Family, protocol and address of each."""

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_REFUSED = tuple(
    map(
        ipaddress.ip_network,
        (
            "192.0.0.0/24",  # for protocols: DS-Lite's own hosts, among others
            "::/96",  # the old way to write IPv4 in IPv6, and ::1
            "64:ff9b:1::/48",  # NAT64 within one network
            "fec0::/10",  # site-local, as ULA is now
        ),
    )
)
"""Networks of no public host that `ipaddress`, in some release of Python, takes for public."""


class LookUps:
    """Owns the threads, and the look-ups under way."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, "registry names")
        self._under_way: dict[str, asyncio.Future[_Found]] = {}

    async def addresses(self, host: str) -> _Found:
        """Look a name up, or join a look-up under way.

        Raises:
            OSError: It has no address.
            UnicodeError: It cannot be a name.
        """
        found = self._under_way.get(host)
        if found is None:
            loop = asyncio.get_running_loop()
            found = loop.run_in_executor(self._pool, look_up, host)
            found.add_done_callback(lambda _: self._under_way.pop(host, None))
            self._under_way[host] = found
        return await asyncio.shield(found)

    def close(self) -> None:
        """Leave what is under way to its threads: nothing can end that sooner. Idempotent."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for found in self._under_way.values():
            found.cancel()


def look_up(host: str) -> _Found:
    """Ask the operating system. Blocks."""
    infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [(family, protocol, _text(address)) for family, _, protocol, _, address in infos]


def _text(address: tuple[Any, ...]) -> str:
    """Give an address with its zone, which a link-local one needs."""
    zone = address[3] if len(address) == 4 else 0
    return f"{address[0]}%{zone}" if zone else str(address[0])


class Resolver(AbstractResolver):
    """What a connection pool asks; with `only_public`, of names whose addresses all are public."""

    def __init__(self, look_ups: LookUps, *, only_public: bool) -> None:
        self._look_ups = look_ups
        self._only_public = only_public

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        """Give the addresses of a name."""
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
        """Leave the threads to their owner."""


def is_public(address: str) -> bool:
    """Return whether an address belongs to a host of the public internet. Pure.

    Where an IPv6 address stands for an IPv4 one, that one counts.
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        ip = _within(ip) or ip
    if any(ip in network for network in _REFUSED):
        return False
    return ip.is_global and not ip.is_multicast


def _within(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if ip in _NAT64:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour
