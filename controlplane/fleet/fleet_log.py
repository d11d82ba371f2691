"""Writes changes of hosts that only memory has, and drains of sessions, to the log of events.

It looks at a host when the host has changed. One transaction writes the changes of all hosts since
the last one. The rows of the hosts have the state that the log describes, so that nothing is
repeated after a restart.
"""

from collections.abc import Collection

from controlplane.domain.hosts.conditions import Avoidance, HostConditions
from controlplane.domain.placement.start_failures import EVERYONE
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.storage.engine.follower import Follower
from controlplane.storage.engine.store import Store, rest
from controlplane.storage.tables.hosts.conditions import note_conditions, note_draining
from tiltyard.runtime.clock import Clock


class FleetLog:
    """Follows the hosts of the fleet."""

    def __init__(self, store: Store, fleet: Fleet, clock: Clock) -> None:
        self._store = store
        self._fleet = fleet
        self._clock = clock
        self._written: dict[str, HostConditions] = {}  # By agent
        self._changed: dict[str, HostConditions] = {}  # Those to write
        self._follower = Follower("events of hosts", self._write, clock)
        fleet.subscribe(self._note_host)

    async def close(self) -> None:
        """Stop writing. Idempotent."""
        await self._follower.close()

    async def _write(self, agents: Collection[str]) -> None:
        await self._write_conditions(agents)
        for name in agents:
            await self._write_drain(name)

    def _note_host(self, host: Host) -> None:
        name = host.name
        if host.state.removed:
            self._written.pop(name, None)
            self._changed.pop(name, None)
        elif host.state.reconciled and host.state.report is not None:
            self._note_conditions(host)
            if _has_drain_to_write(host):
                self._follower.note(name)

    def _note_conditions(self, host: Host) -> None:
        name = host.name
        conditions = self._conditions_of(host)
        written = self._written.setdefault(name, host.state.row.conditions)
        if conditions.is_news(written):
            self._changed[name] = conditions
            self._follower.note(name)
        else:
            self._changed.pop(name, None)
            self._written[name] = conditions

    def _conditions_of(self, host: Host) -> HostConditions:
        state = host.state
        is_full = state.report is not None and state.report.disk_full
        is_in_use = state.in_flight or state.under_way or next(state.live(), None) is not None
        is_empty = state.draining and not is_in_use
        now = self._fleet.now()
        if not state.failures.is_failing(now):
            return HostConditions(is_full, is_empty)
        newest = state.failures.all_failures(now)[0]
        until = self._clock.time() + state.failures.until()[EVERYONE] - now
        avoidance = Avoidance(until, newest.reason.value, newest.text)
        return HostConditions(is_full, is_empty, avoidance)

    async def _write_conditions(self, agents: Collection[str]) -> None:
        changed = {name: self._changed[name] for name in agents if name in self._changed}
        if not changed:
            return
        await self._store.run(note_conditions, changed, self._clock.time())
        for name, conditions in changed.items():
            if name in self._written:
                self._written[name] = conditions
            if self._changed.get(name) == conditions:
                del self._changed[name]

    async def _write_drain(self, name: str) -> None:
        """Mark the sessions of a host in portions, so that other transactions run in between."""
        host = self._fleet.host(name)
        if host is None or not _has_drain_to_write(host):
            return
        began = self._clock.monotonic()
        while not await self._store.run(note_draining, name, self._clock.time()):
            await rest(self._clock, began)
            began = self._clock.monotonic()


def _has_drain_to_write(host: Host) -> bool:
    row = host.state.row
    return row.drain.mark != row.sessions_draining
