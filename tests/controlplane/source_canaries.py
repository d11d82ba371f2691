"""A program that tries hostile strings, and tells of all connections that came of it.

It runs in a network namespace of its own, which it makes one where every IPv4 and IPv6 address is
the machine's. So every connection to one of the ports is seen, with its address.
Names are looked up in a table.
"""

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, TypeAlias

from controlplane.outbound import resolver
from tests.controlplane.hostile_strings import ADDRESSES, PORTS, REBOUND, STRINGS
from tests.controlplane.source_doors import Doors, Guarded

Seen: TypeAlias = list[tuple[str, int]]

NETWORK = (
    "ip link set lo up",
    "ip route add local 0.0.0.0/0 dev lo",
    "ip -6 route add local ::/0 dev lo",
)
LISTENED = ("10.0.0.1", "169.254.169.254", "127.0.0.1", "fd00:ec2::254")


_asked: set[str] = set()


def look_up(host: str) -> list[tuple[socket.AddressFamily, int, str]]:
    """Answer as the operating system and a DNS server would, were the table what they know."""
    if host == REBOUND and host not in _asked:
        _asked.add(host)
        host = "public.example"
    addresses = ADDRESSES.get(host, ("10.0.0.1",))
    with suppress(socket.gaierror):  # the system reads numbers in many ways
        infos = socket.getaddrinfo(
            host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
        addresses = tuple(str(info[4][0]) for info in infos)
    return [
        (socket.AF_INET6 if ":" in address else socket.AF_INET, socket.IPPROTO_TCP, address)
        for address in addresses
    ]


class Canaries:
    """Listens at every address and closes every connection."""

    def __init__(self) -> None:
        self._seen: Seen = []

    async def start(self, stack: AsyncExitStack) -> None:
        for port in PORTS:
            listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("::", port))
            server = await asyncio.start_server(self._accept, sock=listener)
            stack.push_async_callback(server.wait_closed)
            stack.callback(server.close)

    async def _accept(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address, port, *_ = writer.get_extra_info("sockname")
        self._seen.append((address.removeprefix("::ffff:"), port))
        writer.close()

    def take(self) -> Seen:
        """Give where somebody came since it was asked, each once."""
        seen, self._seen = self._seen, []
        return list(dict.fromkeys(seen))

    async def visit(self, address: str) -> Seen:
        """Connect, to see that this is seen."""
        reader, writer = await asyncio.open_connection(address, PORTS[-1])
        await reader.read()
        writer.close()
        return self.take()


class Trial:
    """Tries every string at every door, and goes where it then leads."""

    def __init__(self, doors: Doors, canaries: Canaries) -> None:
        self._doors = doors
        self._canaries = canaries

    async def as_callers(self, text: str) -> Seen:
        """Name a source as callers do."""
        await self._doors.registry(text)
        _, put = await self._doors.repository(text)
        if put.status == 204:
            await self._doors.tag("v1")
        await self._doors.tag(text)
        return self._canaries.take()

    async def as_operators(self, text: str) -> Seen:
        """Configure a source as operators do, and have a caller use it."""
        self._doors.settings(text)
        for door, repository in (
            (self._doors.address, "studio/game"),
            (self._doors.alias, f"{text}/studio/game"),
            (self._doors.log_in_host, "studio/game"),
        ):
            if (await door(text)).status == 204:
                answer = await self._doors.enable_there(repository)
                assert answer.status == 503, (text, answer.text)
        return self._canaries.take()

    async def control(self) -> dict[str, Seen]:
        """Go where one may, and to where nobody may."""
        seen = {address: await self._canaries.visit(address) for address in LISTENED}
        return seen | {name: await self.as_operators(name) for name in ("public.example", REBOUND)}


async def run(folder: Path) -> dict[str, Any]:
    resolver.look_up = look_up
    async with AsyncExitStack() as stack:
        canaries = Canaries()
        await canaries.start(stack)
        system = await stack.enter_async_context(Guarded(folder, agents=0))
        await system.make_application(tag=None)
        trial = Trial(Doors(system), canaries)
        callers = {text: await trial.as_callers(text) for text in STRINGS}
        operators = {text: await trial.as_operators(text) for text in STRINGS}
        return {
            "callers": {text: seen for text, seen in callers.items() if seen},
            "operators": {text: seen for text, seen in operators.items() if seen},
            "control": await trial.control(),
        }


def main() -> None:
    for command in NETWORK:
        subprocess.run(command.split(), check=True)
    with tempfile.TemporaryDirectory() as folder:
        json.dump(asyncio.run(run(Path(folder))), sys.stdout)


if __name__ == "__main__":
    main()
