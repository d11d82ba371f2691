"""Checks from outside whether a session's processes have bound its ports.

Reading /proc/<pid>/net takes time quadratic in the number of sockets, so it is bounded. sock_diag
can list a single port, but needs CAP_SYS_ADMIN in a container's network.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.domain.sessions.session import Port, Process
from agent.kernel.processes import live_process
from agent.network.socket_diag import (
    ANY_PORT,
    TooManySocketsError,
    group_id_of,
    is_bound_by,
    is_local,
    is_reachable,
    sockets_on,
)
from tiltyard.contract import NetworkMode, Protocol
from tiltyard.ends import BoundPort, PortBindings, UnboundPort
from tiltyard.runtime.tasks import Threads

MOST_SOCKETS = 8192
"""Per table; with more, the check fails. Reading 8,192 takes 0.1 s, twice that 0.4 s."""
MOST_OTHERS = 10  # Ports that are named besides the declared ones
LOOKS_AT_ONCE = 4  # More than one, so that a check of few sockets does not wait for one of many

_PROC = Path("/proc")
_FAMILIES = ("", "6")  # File name suffixes for IPv4 and IPv6
_READ_BYTES = 1 << 16  # The kernel returns at most a page per read
_STATES = {Protocol.TCP: "0A", Protocol.UDP: "07"}
"""TCP_LISTEN and TCP_CLOSE of the kernel's net/tcp_states.h."""
_SOCKET = re.compile(
    r"^ *\d+: ([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4}) [0-9A-F]+:[0-9A-F]{4} ([0-9A-F]{2}) ",
    re.MULTILINE,
)
"""Local address, local port and state of a socket."""
_IN_USE = r"^{}: inuse (\d+)"
_WORD_DIGITS = 8


@dataclass(frozen=True, slots=True)
class FoundSocket:
    """A receiving socket: players can reach it, or 127.0.0.1 does; a wildcard is both."""

    protocol: Protocol
    port: int
    is_reachable: bool
    is_local: bool


class Bindings:
    """Checks bound ports, on its own threads."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc
        self._threads = Threads(LOOKS_AT_ONCE, "bindings")

    async def all_bound(
        self, process: Process, network_mode: NetworkMode, ports: Sequence[Port]
    ) -> bool:
        """Return whether players can reach every port of the container; False if `process` ended.

        Raises OSError, and TooManySocketsError if a port is not among MOST_SOCKETS of a table.
        """
        return await self._threads.run(self._look, process, network_mode, ports)

    async def compared(
        self, process: Process, network_mode: NetworkMode, ports: Sequence[Port]
    ) -> PortBindings:
        """Return which ports players cannot reach, and which others the processes have bound.

        All are unreachable if `process` ended. Of more than MOST_SOCKETS of a table, only those
        count. Raises OSError.
        """
        return await self._threads.run(self._compare, process, network_mode, ports)

    async def close(self) -> None:
        """Wait for the checks in progress."""
        await self._threads.close()

    def _look(self, process: Process, network_mode: NetworkMode, ports: Sequence[Port]) -> bool:
        if network_mode is NetworkMode.BRIDGE:
            bound = _bound_in_namespace(self._proc / str(process.pid) / "net", ports)
        else:
            group = group_id_of(process.pid)  # TLS ports are bound on loopback
            bound = all(
                is_bound_by(group, port.protocol, port.own, loopback=port.tls, most=MOST_SOCKETS)
                for port in ports
            )
        return bound and live_process(process.pid) == process

    def _compare(
        self, process: Process, network_mode: NetworkMode, ports: Sequence[Port]
    ) -> PortBindings:
        in_host_network = network_mode is NetworkMode.HOST
        if in_host_network:
            found = _sockets_of_group(group_id_of(process.pid), ports)
        else:
            found = _sockets_in_namespace(self._proc / str(process.pid) / "net")
        if live_process(process.pid) != process:
            found = frozenset()
        return compare_ports(ports, found, in_host_network=in_host_network)


def compare_ports(
    ports: Sequence[Port], found: Collection[FoundSocket], *, in_host_network: bool
) -> PortBindings:
    """Compare declared ports with the sockets of a session. Pure."""
    reachable = {(socket.protocol, socket.port) for socket in found if socket.is_reachable}
    local = {(socket.protocol, socket.port) for socket in found if socket.is_local}
    others = set(reachable)
    unbound: list[UnboundPort] = []
    for port in ports:
        own = port.bound(in_host=in_host_network)
        behind_agent = in_host_network and port.tls
        others.discard((port.protocol, own))
        if (port.protocol, own) in (local if behind_agent else reachable):
            continue
        is_on_loopback = (port.protocol, own) in local
        unbound.append(UnboundPort(port.protocol, port.container, own, is_on_loopback))
    first = sorted(others, key=lambda other: (other[1], other[0].value))[:MOST_OTHERS]
    return PortBindings(tuple(unbound), tuple(BoundPort(*other) for other in first))


def _sockets_in_namespace(net: Path) -> frozenset[FoundSocket]:
    """The sockets that receive in a network namespace; `net` is its /proc/<pid>/net."""
    found: set[FoundSocket] = set()
    for protocol in Protocol:
        for family in _FAMILIES:
            seen = 0
            for rows in _pages(net / f"{protocol.value}{family}"):
                for address, port in _receiving(rows, protocol):
                    found.add(_found(protocol, port, _address(address)))
                seen += rows.count("\n")
                if seen > MOST_SOCKETS:
                    break
    return frozenset(found)


def _sockets_of_group(group: int | None, ports: Sequence[Port]) -> frozenset[FoundSocket]:
    """The sockets of a control group in the host's network.

    If the kernel does not report control groups, those on the declared ports.
    """
    found: set[FoundSocket] = set()
    numbers: dict[Protocol, set[int]] = defaultdict(set)
    for port in ports:
        numbers[port.protocol].add(port.own)
    for protocol in Protocol:
        for seen, socket in enumerate(sockets_on(protocol, ANY_PORT)):
            if seen >= MOST_SOCKETS:
                break
            is_declared = socket.port in numbers[protocol]
            is_own = socket.group == group if None not in {group, socket.group} else is_declared
            if is_own:
                found.add(_found(protocol, socket.port, socket.address))
    return frozenset(found)


def _found(protocol: Protocol, port: int, address: bytes) -> FoundSocket:
    return FoundSocket(protocol, port, is_reachable(address), is_local(address))


def _bound_in_namespace(net: Path, ports: Sequence[Port]) -> bool:
    """Check ports in a network namespace; `net` is its /proc/<pid>/net."""
    numbers: dict[Protocol, set[int]] = defaultdict(set)
    for port in ports:
        numbers[port.protocol].add(port.bound(in_host=False))
    return all(_all_in(net, protocol, wanted) for protocol, wanted in numbers.items())


def _all_in(net: Path, protocol: Protocol, wanted: Iterable[int]) -> bool:
    left = set(wanted)
    is_whole = True
    for family in _FAMILIES:
        table = f"{protocol.value}{family}"
        if not sockets_in_use("".join(_pages(net / f"sockstat{family}")), table):
            continue
        seen = 0
        for rows in _pages(net / table):
            left -= bound_ports(rows, protocol, left)
            if not left:
                return True
            seen += rows.count("\n")
            if seen > MOST_SOCKETS:
                is_whole = False
                break
    if not is_whole:
        raise TooManySocketsError(MOST_SOCKETS)
    return False


def _pages(path: Path) -> Iterator[str]:
    """Yield whole lines of a /proc file, a read at a time; nothing if it does not exist."""
    try:
        with path.open("rb", buffering=0) as file:
            rest = b""
            while page := file.read(_READ_BYTES):
                lines, end, rest = (rest + page).rpartition(b"\n")
                yield (lines + end).decode("ascii")
    except (FileNotFoundError, ProcessLookupError):
        return


def bound_ports(
    table: str, protocol: Protocol, wanted: Container[int] = range(1 << 16)
) -> frozenset[int]:
    """Return the wanted ports that players can reach, from lines of /proc/net/{udp,tcp}[6]."""
    found = set()
    for address, port in _receiving(table, protocol):
        if port in wanted and is_reachable(_address(address)):
            found.add(port)
    return frozenset(found)


def _receiving(table: str, protocol: Protocol) -> Iterator[tuple[str, int]]:
    """Yield the address, for `_address`, and the port of each socket that receives."""
    for address, port, state in _SOCKET.findall(table):
        if state == _STATES[protocol]:
            yield address, int(port, 16)


def sockets_in_use(counts: str, table: str) -> int:
    """Read the number of sockets of a table from the text of `sockstat` or `sockstat6`.

    Cheaper than a container's `tcp`, for which the kernel scans all connections of the machine.
    """
    found = re.search(_IN_USE.format(table.upper()), counts, re.MULTILINE)
    return 0 if found is None else int(found[1])


def _address(digits: str) -> bytes:
    """Decode an address, which the kernel writes in 4-byte words of its own byte order."""
    return b"".join(
        int(digits[at : at + _WORD_DIGITS], 16).to_bytes(4, sys.byteorder)
        for at in range(0, len(digits), _WORD_DIGITS)
    )
