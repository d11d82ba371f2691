"""Warns if the firewall rules of sessions are missing; the agent has no privilege to add them."""

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field

from agent.domain.sessions.session import Session
from agent.network.firewall import Firewall, FirewallError
from tiltyard.contract import NetworkMode, Protocol, State
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import Threads

log = get_logger(__name__)

LOOK_SECONDS = 10.0  # Same period as the reconciliation of records with the engine
PORTS_NAMED = 5

HostPort = tuple[Protocol, int]


@dataclass(eq=False)
class FirewallWatch:
    """Checks rules periodically, on its own thread.

    `published` returns the host ports that must have a rule for IP `version` now; `notify` is
    called when `warnings` change.
    """

    firewall: Firewall
    clock: Clock
    _: KW_ONLY
    version: int
    published: Callable[[], frozenset[HostPort]]
    notify: Callable[[], None]
    warnings: tuple[str, ...] = field(default=(), init=False)  # Warnings for the host's report
    _threads: Threads = field(default_factory=lambda: Threads(1, "firewall"), init=False)
    _unled: frozenset[HostPort] = field(default=frozenset(), init=False)

    async def run(self) -> None:
        """Check every LOOK_SECONDS, forever."""
        while True:
            await self.look()
            await self.clock.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Check once."""
        found = await self._threads.run(self._look, self.published())
        if found != self.warnings:
            for warning in found:
                log.warning("firewall rules are incomplete", error=warning)
            if not found:
                log.info("firewall rules are complete")
            self.warnings = found
            self.notify()

    async def close(self) -> None:
        """Wait for a check in progress, which is bounded by deadlines."""
        await self._threads.close()

    def _look(self, published: frozenset[HostPort]) -> tuple[str, ...]:
        try:
            found = (self._reachable(), self._unreachable(published))
        except FirewallError as error:
            return (f"cannot check whether the firewall rules are in place: {error}",)
        return tuple(filter(None, found))

    def _reachable(self) -> str:
        problems = "; ".join(self.firewall.problems())
        if not problems:
            return ""
        return (
            "sessions may reach services of this host and the metadata of its cloud: run "
            f"`tiltyard-agent firewall apply` ({problems})"
        )

    def _unreachable(self, published: frozenset[HostPort]) -> str:
        """Warn of ports of running sessions without a rule in two consecutive checks.

        The rules of a session can disappear shortly before the agent sees its end.
        """
        led = self.firewall.led_ports(self.version)
        unled = frozenset() if led is None else published - led
        lasting = unled & self._unled
        self._unled = unled
        if not lasting:
            return ""
        names = sorted(f"{protocol.value} {port}" for protocol, port in lasting)
        more = f" and {len(names) - PORTS_NAMED} more" if len(names) > PORTS_NAMED else ""
        return (
            f"no rule leads to ports of running sessions ({', '.join(names[:PORTS_NAMED])}{more}):"
            " restart Docker Engine, which restores them; with live-restore sessions keep running"
        )


def published_ports(sessions: Iterable[Session]) -> frozenset[HostPort]:
    """Return the host ports that Docker Engine publishes for the running sessions."""
    return frozenset(
        (port.protocol, port.host)
        for session in sessions
        if session.state is State.RUNNING and session.spec.network_mode is NetworkMode.BRIDGE
        for port in session.ports
        if not port.tls
    )
