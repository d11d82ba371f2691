"""Makes what leaves a session's port come from the address and port that its callers know.

Each container in the bridge's network has translations in the kernel, by its own address, while
it runs: from before its game begins, so that no packet leaves without, until its processes have
ended, before the engine gives the address to another container. TLS ports have none: what their
players see is the agent.
"""

import asyncio
import contextlib
import ipaddress
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from agent.domain.addresses import Addressed
from agent.domain.sessions.session import Port, Session
from agent.network import netlink
from agent.network.conntrack import translated_flows
from agent.network.sources.nat_rules import ContainerEndpoint, Guard, PublicEndpoint, Translations
from agent.network.sources.nat_table import NatTable
from tiltyard.contract import Protocol
from tiltyard.runtime.batches import Batches
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import Threads

log = get_logger(__name__)

LOOK_SECONDS = 10.0
WAIT_SECONDS = 2.0  # Maximum delay of a start

_GET_ADDRESS = 22  # RTM_GETADDR
_INTERFACE_ADDRESS = struct.Struct("=BBBBI")  # ifaddrmsg, which begins with the address family
_ADDRESS = 1  # IFA_ADDRESS: the other end's, if there is one
_LOCAL = 2  # IFA_LOCAL
_UDP = socket.IPPROTO_UDP
_NUMBERS = {Protocol.UDP: _UDP, Protocol.TCP: socket.IPPROTO_TCP}

Ports = tuple[Port, ...]


class KnownAddresses(NamedTuple):
    """The addresses at which callers know the sessions of a host, by its settings."""

    public: str
    bind: str

    @property
    def version(self) -> int:
        """The version of IP by which players reach the ports: 6 if both addresses are of it."""
        return min(ipaddress.ip_address(each).version for each in self)

    def address_of(self, container: Addressed) -> bytes:
        """The packed address of a container by that version; empty if it has none."""
        address = container.address if self.version == 4 else container.ipv6_address
        return ipaddress.ip_address(address).packed if address else b""

    def source(self, own: Iterable[bytes]) -> bytes:
        """The packed source address of sessions; empty if the kernel has to select one.

        `own`: the addresses of this host's interfaces, of which alone packets can come.
        """
        for address in map(ipaddress.ip_address, self):
            is_usable = address.version == self.version and not address.is_loopback
            if is_usable and address.packed in own:
                return address.packed
        return b""


def translations_of(address: bytes, ports: Iterable[Port], source: bytes) -> Translations:
    """The translations of a container; `source` as `KnownAddresses.source` returns it."""
    found = {}
    for port in ports:
        if not port.tls:
            bound = port.bound(in_host=False)
            private = ContainerEndpoint(address, _NUMBERS[port.protocol], bound)
            found[private] = PublicEndpoint(source, port.host)
    return found


def own_addresses() -> frozenset[bytes]:
    """Return the addresses of this host's interfaces, packed. Blocks; raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.settimeout(netlink.ANSWER_SECONDS)
        everything = _INTERFACE_ADDRESS.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        listed = list(netlink.asked(kernel, _GET_ADDRESS, netlink.DUMP, everything))
    found = (netlink.attributes(each[_INTERFACE_ADDRESS.size :]) for each in listed)
    return frozenset(each.get(_LOCAL) or each[_ADDRESS] for each in found)


class SourceTranslation:
    """The translations of this host's containers. Best effort: a failure delays no start for long.

    `guard` has the range of host ports, also to recognise what an earlier agent has left, once
    `is_reconciled` returns that all running containers are known. `notify` is called when
    `warnings` change.
    """

    def __init__(
        self,
        known: KnownAddresses,
        guard: Guard,
        clock: Clock,
        *,
        is_reconciled: Callable[[], bool],
        notify: Callable[[], None],
        table: NatTable | None = None,
    ) -> None:
        self._known = known
        self._kernel = _Kernel(known, guard, table or NatTable(known.version))
        self._clock = clock
        self._is_reconciled = is_reconciled
        self._notify = notify
        self._held: dict[str, tuple[bytes, Ports]] = {}
        """The address and ports of each container, by the id for which it was made."""
        self._left: frozenset[ContainerEndpoint] = frozenset()
        """The sources that the last look found, and that belong to no container."""
        self._threads = Threads(1, "source-translation")
        self._batches = Batches[bytes, None](self._apply, "source-translation")
        self.warnings: tuple[str, ...] = ()
        """Warnings for the host's report; empty after a success."""

    async def open(self, session: Session, container: Addressed) -> None:
        """Translate what the container of a session sends, which has its addresses now.

        Also of a prepared container, by its template. No-op if that is done already.
        """
        address = self._known.address_of(container)
        if not address:  # in the host's network, or it has ended
            return
        holder = session.made_for
        opened = (address, session.ports)
        before = self._held.get(holder)
        if before == opened:
            return
        for other in [each for each, held in self._held.items() if held[0] == opened[0]]:
            del self._held[other]  # the engine has given its address to another container
        self._held[holder] = opened
        changed = {opened[0]} if before is None else {before[0], opened[0]}
        await self._bounded(*(self._batches.add(each) for each in changed))

    async def close(self, holder: str) -> None:
        """Translate nothing more of the container made for this id, whose processes have ended."""
        held = self._held.pop(holder, None)
        if held is not None:
            await self._bounded(self._batches.add(held[0]))

    async def run(self) -> None:
        """Compare with the kernel every LOOK_SECONDS, forever."""
        while True:
            await self.look()
            await self._clock.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Compare with the kernel once, and restore what others have removed."""
        remove = self._left if self._is_reconciled() else frozenset()
        await self._bounded(self._compare(remove))

    async def finish(self) -> None:
        """Wait for the work in progress, which is bounded by deadlines."""
        await self._batches.finish()
        await self._threads.close()
        self._kernel.close()

    async def _apply(self, addresses: Sequence[bytes]) -> Sequence[None]:
        await self._threads.run(self._kernel.apply, self._wanted(set(addresses)))
        return [None] * len(addresses)

    async def _compare(self, remove: frozenset[ContainerEndpoint]) -> None:
        wanted = self._wanted({address for address, _ in self._held.values()})
        self._left = await self._threads.run(self._kernel.compare, wanted, remove)

    def _wanted(self, addresses: Iterable[bytes]) -> dict[bytes, Ports]:
        held = dict(self._held.values())
        return {address: held.get(address, ()) for address in addresses}

    async def _bounded(self, *work: Awaitable[None]) -> None:
        """Wait for work on the kernel, for WAIT_SECONDS at most; a failure becomes a warning."""
        warnings: tuple[str, ...] = ()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await asyncio.gather(*work)
        except OSError as error:  # TimeoutError is one
            warnings = (_warning(error.strerror or "the kernel does not answer in time"),)
        except Exception:
            # Other sessions are in the same batch.
            log.exception("cannot translate the source of packets: internal error")
            warnings = (_warning("internal error"),)
        if warnings != self.warnings:
            for warning in warnings:
                log.warning("the source of packets is not translated", error=warning)
            self.warnings = warnings
            self._notify()


def _warning(cause: str) -> str:
    return (
        f"cannot translate the source of packets (nftables, CAP_NET_ADMIN): {cause}; what a game "
        "sends first comes from another port and address than its players know"
    )


class _Kernel:
    """The kernel's table, and a copy of its content. Blocks; all methods raise OSError."""

    def __init__(self, known: KnownAddresses, guard: Guard, table: NatTable) -> None:
        self._known = known
        self._guard = guard
        self._table = table
        self._source: bytes | None = None
        self._there: dict[bytes, dict[ContainerEndpoint, PublicEndpoint]] | None = None
        """The translations of each address; None if others may have changed the table."""
        self._is_made = False
        self._is_guarded = False
        """True if this agent has made the rules; another agent may have made older ones."""

    def apply(self, wanted: Mapping[bytes, Ports]) -> None:
        """Make the translations of these addresses agree with their ports."""
        try:
            self._apply(wanted)
        except OSError:
            self._there = None
            self._apply(wanted)

    def compare(
        self, wanted: Mapping[bytes, Ports], remove: frozenset[ContainerEndpoint]
    ) -> frozenset[ContainerEndpoint]:
        """Restore missing translations; return sources that belong to no container of this host.

        Sources in `remove`, which an earlier call returned, lose their translations.
        """
        self._there = None
        self._source = None
        self._apply(wanted)
        first, last = self._guard.ports
        left = {
            private: public
            for address, found in self._content().items()
            if address not in wanted
            for private, public in found.items()
            if first <= public.port <= last  # others are of another agent on this host
        }
        self._change({each: left[each] for each in remove & left.keys()}, {})
        return frozenset(left) - remove

    def close(self) -> None:
        """Release the connection."""
        self._table.close()

    def _apply(self, wanted: Mapping[bytes, Ports]) -> None:
        there = self._content()
        if self._source is None:
            self._source = self._known.source(own_addresses())
        remove: dict[ContainerEndpoint, PublicEndpoint] = {}
        add: dict[ContainerEndpoint, PublicEndpoint] = {}
        for address, ports in wanted.items():
            old = there.get(address, {})
            new = translations_of(address, ports, self._source)
            remove |= {each: old[each] for each in old if new.get(each) != old[each]}
            add |= {each: new[each] for each in new if old.get(each) != new[each]}
        self._change(remove, add)
        if there and not self._is_guarded:
            self._table.set_rules(self._guard)
            self._is_guarded = True

    def _content(self) -> dict[bytes, dict[ContainerEndpoint, PublicEndpoint]]:
        if self._there is None:
            found = self._table.read()
            self._is_made = found is not None
            self._there = {}
            for private, public in (found or {}).items():
                self._there.setdefault(private.address, {})[private] = public
        return self._there

    def _change(self, remove: Translations, add: Translations) -> None:
        if not (remove or add):
            return
        if not self._is_made:
            self._table.make(self._guard)
            self._is_made = True
            self._is_guarded = True
        self._table.change(remove, add)
        there = self._content()
        for private in remove:
            del there[private.address][private]
        for private, public in add.items():
            there.setdefault(private.address, {})[private] = public
        ports = {public.port for private, public in remove.items() if private.protocol == _UDP}
        # A player's datagrams would go on to that address. Without the flush only for a while.
        with contextlib.suppress(OSError):
            self._table.forget([translated_flows(port) for port in sorted(ports)])
