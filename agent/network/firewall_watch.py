"""Warns of firewall rules that keep players from sessions, or do not keep sessions from the host.

The agent has no privilege to change rules.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from ipaddress import ip_address

from agent.domain.sessions.session import Session
from agent.network.firewall import Firewall, FirewallError
from agent.network.firewall_rules import Address
from agent.network.led_ports import HostPort, Target, led_elsewhere
from tiltyard.contract import NetworkMode, Protocol, State
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import Threads

log = get_logger(__name__)

LOOK_SECONDS = 10.0  # Same period as the reconciliation of records with the engine
PORTS_NAMED = 5


@dataclass(eq=False)
class FirewallWatch:
    """Checks rules periodically, on its own thread.

    `published` returns the host ports that must lead to containers now, with the address of each,
    empty if unknown; `held` those that containers of this host may have, which is None while that
    is unknown; `bind_address` is where the engine publishes them. `notify` is called when warnings
    change.
    """

    firewall: Firewall
    clock: Clock
    _: KW_ONLY
    bind_address: Address
    published: Callable[[], Mapping[HostPort, str]]
    held: Callable[[], frozenset[HostPort] | None]
    notify: Callable[[], None]
    warnings: tuple[str, ...] = field(default=(), init=False)
    """Warnings of rules that are missing, for the host's report."""
    port_warnings: tuple[str, ...] = field(default=(), init=False)
    """Warnings of rules that lead free ports elsewhere, for the host's report."""
    elsewhere: Mapping[HostPort, Target] = field(default_factory=dict, init=False)
    """Ports that a session must not get, since a rule leads them elsewhere; empty if unknown."""
    _threads: Threads = field(default_factory=lambda: Threads(1, "firewall"), init=False)
    _unled: frozenset[HostPort] = field(default=frozenset(), init=False)

    async def run(self) -> None:
        """Check every LOOK_SECONDS, forever."""
        while True:
            await self.look()
            await self.clock.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Check once."""
        before = self.held()
        found, led = await self._threads.run(self._look, self.published())
        after = self.held()
        if found != self.warnings:
            for warning in found:
                log.warning("firewall rules are incomplete", error=warning)
            if not found:
                log.info("firewall rules are complete")
            self.warnings = found
            self.notify()
        # While the rules were read, containers may have taken or released ports.
        if before is None or after is None:
            self._note_elsewhere({})
        else:
            self._note_elsewhere(led_elsewhere(led, before | after, self.firewall.ports))

    def leads_elsewhere(self, protocol: Protocol, port: int) -> bool:
        """Return whether the last check found a rule that leads a free port elsewhere."""
        target = self.elsewhere.get((protocol, port))
        if target is None:
            return False
        log.warning(
            "a rule leads a port elsewhere",
            port=port,
            protocol=protocol.value,
            address=target.text,
        )
        return True

    async def close(self) -> None:
        """Wait for a check in progress, which is bounded by deadlines."""
        await self._threads.close()

    def _look(
        self, published: Mapping[HostPort, str]
    ) -> tuple[tuple[str, ...], Mapping[HostPort, Target]]:
        """Return the warnings of missing rules, and where rules lead ports, as far as known."""
        try:
            reachable = self._reachable()
            led = self.firewall.led_ports(self.bind_address)
        except FirewallError as error:
            return (f"cannot check whether the firewall rules are in place: {error}",), {}
        found = (reachable, self._unreachable(published, led))
        return tuple(filter(None, found)), led or {}

    def _reachable(self) -> str:
        problems = "; ".join(self.firewall.problems())
        if not problems:
            return ""
        return (
            "sessions may reach services of this host and the metadata of its cloud: run "
            f"`tiltyard-agent firewall apply` ({problems})"
        )

    def _unreachable(
        self, published: Mapping[HostPort, str], led: Mapping[HostPort, Target] | None
    ) -> str:
        """Warn of ports that do not lead to their running session in two consecutive checks.

        The rules of a session can disappear shortly before the agent sees its end.
        """
        unled = frozenset() if led is None else _unled(published, led)
        lasting = unled & self._unled
        self._unled = unled
        if not lasting:
            return ""
        ports = _listed(_described(port, (led or {}).get(port)) for port in lasting)
        return (
            f"no rule leads to ports of running sessions ({ports}): restart Docker Engine, which "
            "restores them; with live-restore sessions keep running"
        )

    def _note_elsewhere(self, elsewhere: Mapping[HostPort, Target]) -> None:
        """Keep what was found, and warn of what two consecutive checks have found.

        The rule of a session may outlast it by a moment.
        """
        lasting = elsewhere.keys() & self.elsewhere.keys()
        self.elsewhere = elsewhere
        warnings = _warnings_of({port: elsewhere[port] for port in lasting})
        if warnings != self.port_warnings:
            for warning in warnings:
                log.warning("free ports are led elsewhere", error=warning)
            if not warnings:
                log.info("no free port is led elsewhere")
            self.port_warnings = warnings
            self.notify()


def _warnings_of(elsewhere: Mapping[HostPort, Target]) -> tuple[str, ...]:
    if not elsewhere:
        return ()
    ports = _listed(_described(port, target) for port, target in elsewhere.items())
    warning = (
        f"firewall rules lead free ports elsewhere ({ports}), so no session gets these: restart "
        "Docker Engine, which removes what it has left (with live-restore sessions keep running), "
        "or remove the rules of other programs"
    )
    return (warning,)


def _unled(
    published: Mapping[HostPort, str], led: Mapping[HostPort, Target]
) -> frozenset[HostPort]:
    """The published ports that do not lead to the address of their container."""
    found = set()
    for port, address in published.items():
        target = led.get(port)
        if target is None or (address and target.address != ip_address(address)):
            found.add(port)
    return frozenset(found)


def _described(port: HostPort, target: Target | None) -> str:
    protocol, number = port
    name = f"{protocol.value} {number}"
    return name if target is None else f"{name} to {target.text}"


def _listed(ports: Iterable[str]) -> str:
    names = sorted(ports)
    more = f" and {len(names) - PORTS_NAMED} more" if len(names) > PORTS_NAMED else ""
    return ", ".join(names[:PORTS_NAMED]) + more


def published_ports(sessions: Iterable[Session], version: int) -> dict[HostPort, str]:
    """Return the host ports that Docker Engine publishes for the running sessions.

    Each has the address of its container for a version of IP, which is empty if unknown. If the
    container has an address, but none of that version, the engine publishes its ports without a
    rule: its proxy relays them.
    """
    ports = {}
    for session in sessions:
        address = session.address if version == 4 else session.ipv6_address
        if session.state is not State.RUNNING or session.spec.network_mode is NetworkMode.HOST:
            continue
        if not address and (session.address or session.ipv6_address):
            continue
        ports.update(
            {(port.protocol, port.host): address for port in session.ports if not port.tls}
        )
    return ports
