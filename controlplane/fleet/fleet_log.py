"""Writes to the log of events what is known of hosts in memory alone.

It looks at a host when the host has changed, and writes only what the log does not have yet: the
changes of all hosts since the last transaction are one transaction. What the log has is in the
rows of the hosts, so that a restart repeats nothing.
"""

import asyncio
from random import Random

from controlplane.domain.errors import StoreError
from controlplane.domain.hosts.conditions import Avoidance, HostConditions
from controlplane.domain.placement.start_failures import EVERYONE
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.storage.engine.follower import write_when_woken
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.hosts.conditions import note_conditions, note_draining
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

REST = 2.0  # Pause after a portion of draining sessions, as a multiple of its duration


class FleetLog:
    """Follows the hosts of the fleet."""

    def __init__(self, store: Store, fleet: Fleet, *, clock: Clock, random: Random) -> None:
        self._store = store
        self._fleet = fleet
        self._clock = clock
        self._random = random
        self._written: dict[str, HostConditions] = {}  # By agent
        self._changed: dict[str, HostConditions] = {}
        self._drained: dict[str, tuple[int, int]] = {}
        """By agent, the mark of the drain that its sessions have, and how many it had then."""
        self._to_drain: set[str] = set()
        self._wake = asyncio.Event()
        fleet.subscribe(self._note_host)

    async def run(self) -> None:
        """Write until cancelled."""
        await write_when_woken(
            self._wake, self._write, failed=_log_failure, clock=self._clock, random=self._random
        )

    async def _write(self) -> None:
        await self._write_conditions()
        await self._write_drains()

    def _note_host(self, host: Host) -> None:
        name = host.name
        if host.state.removed:
            for known in (self._written, self._changed, self._drained):
                known.pop(name, None)
            self._to_drain.discard(name)
        elif host.state.reconciled and host.state.report is not None:
            self._note_conditions(host)
            self._note_drain(host)

    def _note_conditions(self, host: Host) -> None:
        name = host.name
        conditions = self._conditions_of(host)
        written = self._written.setdefault(name, host.state.row.conditions)
        if conditions.is_news(written):
            self._changed[name] = conditions
            self._wake.set()
        else:
            self._changed.pop(name, None)
            self._written[name] = conditions

    def _conditions_of(self, host: Host) -> HostConditions:
        state = host.state
        is_full = state.report is not None and state.report.disk_full
        is_empty = state.draining and not state.in_flight and next(state.live(), None) is None
        now = self._fleet.now()
        if not state.failures.is_failing(now):
            return HostConditions(is_full, is_empty)
        newest = state.failures.all_failures(now)[0]
        until = self._clock.time() + state.failures.until()[EVERYONE] - now
        avoidance = Avoidance(until, newest.reason.value, newest.text)
        return HostConditions(is_full, is_empty, avoidance)

    def _note_drain(self, host: Host) -> None:
        state = host.state
        mark, count = self._drained.setdefault(host.name, (state.row.sessions_draining, 0))
        has_more = state.drain.draining and state.live_sessions > count
        if state.drain.mark != mark or has_more:
            self._to_drain.add(host.name)
            self._wake.set()

    async def _write_conditions(self) -> None:
        changed = dict(self._changed)
        if not changed:
            return
        await self._store.run(note_conditions, changed, self._clock.time())
        for name, conditions in changed.items():
            if name in self._written:
                self._written[name] = conditions
            if self._changed.get(name) == conditions:
                del self._changed[name]

    async def _write_drains(self) -> None:
        """Mark the sessions of hosts in portions, which leave the writer to others in between."""
        while self._to_drain:
            name = min(self._to_drain)
            host = self._fleet.host(name)
            is_done = host is None or await self._mark_portion(host)
            if is_done:
                self._to_drain.discard(name)

    async def _mark_portion(self, host: Host) -> bool:
        drain = host.state.drain
        count = host.state.live_sessions
        began = self._clock.monotonic()
        is_done = await self._store.run(note_draining, host.name, drain, self._clock.time())
        if is_done and drain == host.state.drain:
            self._drained[host.name] = (drain.mark, count)
            return True
        await self._clock.sleep(REST * (self._clock.monotonic() - began))
        return False


def _log_failure(error: StoreError) -> None:
    log.warning("cannot write events of hosts", error=str(error))
