"""DNS resolver for registries: separate threads, optionally public addresses only."""

import asyncio
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from controlplane.domain.addresses import is_public

THREADS = 64
"""Lookups of one name are shared, so an unresponsive DNS server blocks one thread per name."""

Addresses = Sequence[tuple[socket.AddressFamily, int, str]]
"""Family, protocol and address of each."""


class LookUps:
    """Runs DNS lookups on its own threads and shares those in progress."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, "registry names")
        self._running: dict[str, asyncio.Future[Addresses]] = {}

    async def addresses(self, host: str) -> Addresses:
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


def look_up(host: str) -> Addresses:
    """Resolve with the operating system. Blocks."""
    infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [(family, protocol, _with_zone(address)) for family, _, protocol, _, address in infos]


def _with_zone(address: tuple[Any, ...]) -> str:
    """Format an address with its zone, which link-local ones need."""
    zone = address[3] if len(address) == 4 else 0
    return f"{address[0]}%{zone}" if zone else str(address[0])


def resolved(host: str, port: int, addresses: Addresses) -> list[ResolveResult]:
    """Return the addresses of a name as aiohttp connects to them, without a further lookup."""
    return [
        ResolveResult(
            hostname=host,
            host=address,
            port=port,
            family=family,
            proto=protocol,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for family, protocol, address in addresses
    ]


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
        return resolved(host, port, found)

    async def close(self) -> None:
        """Do nothing: `LookUps` owns the threads."""
