"""Whether a session's processes have bound its ports: seen from outside, no game has to say so."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from agent.network.bound_ports import bound_ports, sockets_in_use
from agent.network.socket_diag import group_of, is_bound_by
from agent.processes import live_process
from agent.sessions.session import NetworkMode, Port, Process, Protocol

_PROC = Path("/proc")
_FAMILIES = ("", "6")
"""Ends of the names of files about IPv4 and IPv6."""


class Bindings:
    """Looks at sockets on a thread of its own, one session after the other.

    A look takes 0.2 ms, or 4 ms for each family when TCP is in use: the kernel goes through the
    connections of the whole machine. One thread bounds what all looks together can take.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "bindings")
        self._under_way: set[asyncio.Future[bool]] = set()

    async def all_bound(
        self, process: Process, network_mode: NetworkMode, ports: Sequence[Port]
    ) -> bool:
        """Tell whether players can reach every port of a container, by its first process.

        False when that has ended. Raises OSError when the kernel does not tell.
        """
        if network_mode is NetworkMode.BRIDGE:
            look = partial(_bound_in_namespace, process.pid, ports)
        else:
            look = partial(_bound_on_host, process.pid, ports)
        looking = asyncio.get_running_loop().run_in_executor(
            self._thread, lambda: look() and live_process(process.pid) == process
        )
        self._under_way.add(looking)
        looking.add_done_callback(self._under_way.discard)
        return await asyncio.shield(looking)

    async def close(self) -> None:
        """Wait for the look under way."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        await asyncio.gather(*self._under_way, return_exceptions=True)


def _bound_in_namespace(pid: int, ports: Sequence[Port]) -> bool:
    """Look at all sockets of a process's network namespace, which its container has for itself."""
    numbers: dict[Protocol, set[int]] = defaultdict(set)
    for port in ports:
        numbers[port.protocol].add(port.container)
    return all(_all_in(pid, protocol, wanted) for protocol, wanted in numbers.items())


def _all_in(pid: int, protocol: Protocol, wanted: Iterable[int]) -> bool:
    left = set(wanted)
    for family in _FAMILIES:
        table = f"{protocol.value}{family}"
        if left and sockets_in_use(_read(pid, f"sockstat{family}"), table):
            left -= bound_ports(_read(pid, table), protocol)
    return not left


def _bound_on_host(pid: int, ports: Sequence[Port]) -> bool:
    """Look for the ports that the process was told; before TLS ports the agent is, by loopback."""
    group = group_of(pid)
    return all(is_bound_by(group, port.protocol, port.told, loopback=port.tls) for port in ports)


def _read(pid: int, name: str) -> str:
    """A file about a process's network; nothing when the process or IPv6 is not there."""
    try:
        return (_PROC / str(pid) / "net" / name).read_text("ascii")
    except (FileNotFoundError, ProcessLookupError):
        return ""
