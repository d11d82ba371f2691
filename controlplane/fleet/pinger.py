"""Measures the latency of each host: at its first report, then once per interval.

An address that does not reply is retried at once until it counts as unresponsive: at most a dozen
echoes per host and interval.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from random import Random

from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.fleet.icmp import CannotPingError, ping
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import run_again

log = get_logger(__name__)

TIMEOUT = 1.0  # Seconds for a reply: hosts farther away are useless for games
LOOK = 1.0  # Seconds between two checks for hosts that are due
AT_ONCE = 64  # Maximum number of concurrent echoes
JITTER = 0.1  # Jitter as a fraction of the interval, against a thundering herd


@dataclass(slots=True)
class Pinger:
    """Measures the hosts of a fleet."""

    fleet: Fleet
    _: KW_ONLY
    interval: float  # Seconds between two measurements of a host; 0 disables them
    clock: Clock
    random: Random = field(default_factory=Random)  # noqa: S311 - not a secret
    ping: Callable[[str, float], Awaitable[float | None]] = ping
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    _logged: str = ""

    async def run(self) -> None:
        """Measure until cancelled; return at once if `interval` is 0."""
        if not self.interval:
            return
        async with asyncio.TaskGroup() as group:
            while True:
                now = self.clock.monotonic()
                for host in self.fleet.hosts:
                    if self._is_due(host, now):
                        host.state.latency.due = float("inf")
                        work = run_again(partial(self._measure, host), self.clock)
                        group.create_task(work, name=f"ping {host.name}")
                await self.clock.sleep(LOOK)

    def _is_due(self, host: Host, now: float) -> bool:
        latency = host.state.latency
        return (
            latency.due <= now and bool(latency.addresses) and self.fleet.is_responsive(host.name)
        )

    async def _measure(self, host: Host) -> None:
        for address in host.state.latency.addresses:
            try:
                while not host.state.latency.note(address, await self._echo(address)):
                    pass
            except CannotPingError as error:
                host.state.latency.forget()
                self._log(f"cannot measure latency: {error}")
                break
            self._log("")
        wait = self.interval * (1 + JITTER * (2 * self.random.random() - 1))
        host.state.latency.due = self.clock.monotonic() + wait

    async def _echo(self, address: str) -> float | None:
        async with self._slots:
            return await self.ping(address, TIMEOUT)

    def _log(self, text: str) -> None:
        if text == self._logged:
            return
        self._logged = text
        if text:
            log.warning("latency is not measured, hosts are not ranked by it", error=text)
        else:
            log.info("latency is measured again")
