"""A program that tries hostile strings, and reports all connections that result.

In its network namespace every IPv4 and IPv6 address is the machine's, so that every connection to
one of the ports is seen with its address. Names are looked up in a table.
"""

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError

from controlplane.registries import resolver
from controlplane.settings.model import Config
from controlplane.settings.registries import RegistryConfig
from tests.controlplane.hostile_strings import ADDRESSES, ALIASES, PORTS, REBOUND, STRINGS
from tests.support.controlplane.system import APPLICATION, Answer, System

Seen: TypeAlias = list[tuple[str, int]]

NETWORK = (
    "ip link set lo up",
    "ip route add local 0.0.0.0/0 dev lo",
    "ip -6 route add local ::/0 dev lo",
)
LISTENED = ("10.0.0.1", "169.254.169.254", "127.0.0.1", "fd00:ec2::254")


_asked: set[str] = set()


def look_up(host: str) -> list[tuple[socket.AddressFamily, int, str]]:
    """Answer as the operating system and a DNS server that knows the table."""
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
        """Return the connections since the last call, each once."""
        seen = self._seen
        self._seen = []
        return list(dict.fromkeys(seen))

    async def visit(self, address: str) -> Seen:
        """Connect to an address; return what was seen."""
        reader, writer = await asyncio.open_connection(address, PORTS[-1])
        await reader.read()
        writer.close()
        return self.take()


class Guarded(System):
    """A system whose registry has aliases."""

    @property
    def config(self) -> Config:
        local = RegistryConfig(name="local", address=self.registry.address, aliases=ALIASES)
        return super().config.model_copy(update={"registries": (local,)})


class Sources:
    """Each call and setting that names a source of images.

    There are an application `game` and a registry `local`; operators configure another, `tried`.
    """

    def __init__(self, system: System) -> None:
        self._system = system
        self._numbers = count()

    async def edit(self, **changes: str) -> tuple[Answer, Answer]:
        """Create an application with these fields, and change `game` to have them."""
        new = APPLICATION | {"name": f"new-{next(self._numbers)}"} | changes
        post = await self._system.call("POST", "/application", json=new)
        return post, await self._system.edit(**changes)

    async def enable(self, tag: str) -> Answer:
        return await self._system.call("POST", "/application/game/tags", json={"tag": tag})

    async def configure(self, **body: object) -> Answer:
        """Set the registry `tried`, by default at an address that is allowed."""
        body = {"address": "registry.example"} | body
        return await self._system.call("PUT", "/operator/registry/tried", json=body)

    async def enable_there(self, repository: str) -> Answer:
        """Enable a tag of a repository in the registry `tried`."""
        (await self._system.edit(registry="tried", repository=repository)).expect(204)
        return await self.enable("v1")


def may_be_set(**keys: Any) -> bool:
    """Return whether a settings file may have a registry with these keys."""
    try:
        RegistryConfig(**{"name": "tried", "address": "registry.example", **keys})
    except ValidationError:
        return False
    return True


class Trial:
    """Tries a string as every source, and uses what is accepted."""

    def __init__(self, sources: Sources, canaries: Canaries) -> None:
        self._sources = sources
        self._canaries = canaries

    async def as_callers(self, text: str) -> Seen:
        """Name a source as callers do."""
        await self._sources.edit(registry=text)
        _, put = await self._sources.edit(repository=text)
        if put.status == 204:
            await self._sources.enable("v1")
        await self._sources.enable(text)
        return self._canaries.take()

    async def as_operators(self, text: str) -> Seen:
        """Configure a source as operators do, and have a caller use it."""
        may_be_set(address=text, aliases=(text,), auth_hosts=(text,))
        for keys, repository in (
            ({"address": text}, "studio/game"),
            ({"aliases": [text]}, f"{text}/studio/game"),
            ({"authHosts": [text]}, "studio/game"),
        ):
            if (await self._sources.configure(**keys)).status == 204:
                answer = await self._sources.enable_there(repository)
                assert answer.status == 503, (text, answer.text)
        return self._canaries.take()

    async def control(self) -> dict[str, Seen]:
        """Connect to what is allowed and to what is forbidden, to see that both are seen."""
        seen = {address: await self._canaries.visit(address) for address in LISTENED}
        return seen | {name: await self.as_operators(name) for name in ("public.example", REBOUND)}


async def run(folder: Path) -> dict[str, Any]:
    resolver.look_up = look_up
    async with AsyncExitStack() as stack:
        canaries = Canaries()
        await canaries.start(stack)
        system = await stack.enter_async_context(Guarded(folder, agents=0))
        await system.make_application(tag=None)
        trial = Trial(Sources(system), canaries)
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
