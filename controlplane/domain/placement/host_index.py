"""The hosts of one region and node pool, indexed for the choice of one of them. Pure.

`placement` says of a host whether it can take a start, and how it ranks. This index answers for
all hosts at once: it has for each fact that placement asks of a host the set of the hosts that
have it, and for each number a set per bit (a bit-sliced index). A change of a host updates what
has changed. The time for a choice hardly depends on which hosts have what, so that full hosts,
missing images or taken ports cannot slow it; docs/performance.md has the figures.

A test compares the index with `placement`. What changes there changes here: an obstacle in
`HostRoom.of` or `_with_room`, a rank in `best`.
"""

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from random import Random

from controlplane.domain.placement.avoidance import AvoidedRows
from controlplane.domain.placement.host_room import HostRoom, Slots, in_order
from controlplane.domain.placement.placement import Strategy, Wanted, whole_milliseconds
from controlplane.domain.placement.row_sets import (
    Keys,
    Numbers,
    ReportTimes,
    Rows,
    any_of,
    numbers_of,
    rows_of,
)
from controlplane.domain.placement.start_failures import Owner
from tiltyard.contract import PortRequest, Protocol

MOST_KEYS = 1000
"""Images, shapes and pinned ports each of which the rows are remembered: those asked for last."""


_FACTS = HostRoom._fields[:5]
_AMOUNTS = HostRoom._fields[5:]
_UNKNOWN = HostRoom()


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When hosts are compared: `max_age` is the greatest age of a host's last report."""

    now: float
    max_age: float


class HostIndex:
    """Owns the facts of the hosts of one place; each host has a row.

    A host is unknown until its room is set, and is never chosen before.
    """

    def __init__(self) -> None:
        self._row_of: dict[str, int] = {}
        self._agents: list[str] = []  # By row; "" for one without a host
        self._free: list[int] = []  # Rows without a host
        self._rooms: list[HostRoom] = []
        self._facts: dict[str, Rows] = dict.fromkeys(_FACTS, 0)
        self._amounts = {name: Numbers() for name in _AMOUNTS}
        self._reports = ReportTimes()
        self._doubted: Rows = 0
        self._latency_of: list[int] = []
        self._latencies = Numbers()
        self._slots: list[Slots] = []
        self._with_slot: Rows = 0
        self._other_slots: dict[str, Rows] = {}
        """The rows for which `_with_slot` is wrong, by account."""
        self._avoided = AvoidedRows()
        self._images = Keys[str](MOST_KEYS)
        self._shapes = Keys[str](MOST_KEYS)
        self._ports = {protocol: Keys[int](MOST_KEYS) for protocol in Protocol}

    # ---- changes

    def add(self, agent: str) -> None:
        """Add a host of which nothing is known."""
        if not self._free:
            self._free.append(len(self._agents))
            self._agents.append("")
            self._rooms.append(_UNKNOWN)
            self._latency_of.append(0)
            self._slots.append(Slots())
        row = self._free.pop()
        self._agents[row] = agent
        self._row_of[agent] = row
        self.set_latency(agent, None)

    def remove(self, agent: str) -> None:
        """Remove a host, with all that is known of it."""
        row = self._row_of[agent]
        self.set_room(agent, None)
        self.set_doubt(agent, is_in_doubt=False)
        self.set_slots(agent, Slots())
        self.set_avoided(agent, {})
        self._images.replace(row, frozenset())
        self._shapes.replace(row, frozenset())
        for ports in self._ports.values():
            ports.replace(row, frozenset())
        self._reports.forget(row)
        self._agents[row] = ""
        self._free.append(row)
        del self._row_of[agent]

    def note_report(self, agent: str, time: float) -> None:
        """Note that a host has reported."""
        self._reports.note_report(self._row_of[agent], time)

    def set_room(self, agent: str, room: HostRoom | None) -> bool:
        """Set what a host has left; None if it is not known. Return whether its health changed."""
        row = self._row_of[agent]
        before = self._rooms[row]
        after = _UNKNOWN if room is None else room
        if before == after:
            return False
        self._rooms[row] = after
        values = zip(HostRoom._fields, before, after, strict=True)
        for name, old, new in values:
            if old == new:
                continue
            if name in self._facts:
                self._facts[name] ^= 1 << row
            else:
                self._amounts[name].change(row, old, new)
        return before.is_known != after.is_known or before.is_healthy != after.is_healthy

    def set_doubt(self, agent: str, *, is_in_doubt: bool) -> None:
        """Set whether a host is in doubt."""
        self._doubted = _with(self._doubted, self._row_of[agent], is_in=is_in_doubt)

    def set_latency(self, agent: str, seconds: float | None) -> None:
        """Set the latency of a host; None if unknown."""
        row = self._row_of[agent]
        after = in_order(whole_milliseconds(seconds))
        self._latencies.change(row, self._latency_of[row], after)
        self._latency_of[row] = after

    def set_slots(self, agent: str, slots: Slots) -> None:
        """Set the accounts for which a host has a start slot."""
        row = self._row_of[agent]
        before = self._slots[row]
        if before == slots:
            return
        self._slots[row] = slots
        self._with_slot = _with(self._with_slot, row, is_in=slots.is_free)
        for account in before.others ^ slots.others:
            rows = self._other_slots.get(account, 0) ^ 1 << row
            if rows:
                self._other_slots[account] = rows
            else:
                del self._other_slots[account]

    def set_avoided(self, agent: str, until: Mapping[Owner, float]) -> None:
        """Set which applications avoid a host, and until when."""
        self._avoided.change(self._row_of[agent], until)

    def set_images(self, agent: str, images: frozenset[str]) -> None:
        """Set the images of a host."""
        self._images.replace(self._row_of[agent], images)

    def set_shapes(self, agent: str, shapes: frozenset[str]) -> None:
        """Set the shapes of which a host has a prepared container to spare."""
        self._shapes.replace(self._row_of[agent], shapes)

    def set_ports(self, agent: str, taken: Mapping[Protocol, AbstractSet[int]]) -> None:
        """Set the ports that are taken on a host; the sets may change, see `change_ports`."""
        for protocol, ports in taken.items():
            self._ports[protocol].replace(self._row_of[agent], ports)

    def change_ports(self, agent: str, changed: Iterable[tuple[Protocol, int]]) -> None:
        """Note ports that were taken or released in the sets of a host."""
        row = self._row_of[agent]
        for protocol, port in changed:
            self._ports[protocol].change(row, port)

    # ---- questions

    def best(
        self,
        wanted: Wanted,
        moment: Moment,
        *,
        strategy: Strategy,
        random: Random,
        refused: Collection[str] = (),
    ) -> str | None:
        """Return the best host on which a start can begin now, a random one of equals."""
        slots = self._with_slot ^ self._other_slots.get(wanted.account, 0)
        spare = self._shapes.having(wanted.shape) if wanted.shape else 0
        among = (slots | spare) & self._with_room(wanted, moment)
        among &= ~self._rows(refused)
        if not among:
            return None
        among = _without(among, self._doubted)
        among = _without(among, self._avoided.avoided_by(wanted.owner, moment.now))
        fill = self._amounts["fill"]
        among = fill.greatest(among) if strategy is Strategy.PACKED else fill.least(among)
        among = self._latencies.least(among)
        among = _without(among, ~spare)
        return self._agents[any_of(among, random)]

    def with_room(self, wanted: Wanted, moment: Moment) -> list[str]:
        """Return the hosts that could take a session, given a free start slot."""
        return [self._agents[row] for row in numbers_of(self._with_room(wanted, moment))]

    def lacking(
        self, asked: Iterable[tuple[Wanted, frozenset[str]]], moment: Moment
    ) -> set[tuple[Wanted, frozenset[str]]]:
        """Return the requests for which no host has room; each has the hosts that refused it."""
        found = set()
        rooms: dict[Wanted, Rows] = {}
        for wanted, refused in asked:
            if wanted not in rooms:
                rooms[wanted] = self._with_room(wanted, moment)
            if not rooms[wanted] & ~self._rows(refused):
                found.add((wanted, refused))
        return found

    def count_unresponsive(self, wanted: Wanted, refused: Collection[str], moment: Moment) -> int:
        """Count the unresponsive hosts that may have room for a start.

        A host without a report for too long has the room that it reported last. If the engine of
        a host does not answer, only the images of the host are known.
        """
        old = self._facts["is_open"] & ~self._reports.within(moment.max_age, moment.now)
        roomy = self._roomy(wanted, old)
        without_engine = self._facts["is_known"] & ~self._facts["has_engine"]
        without_engine &= self._images.having(wanted.image)
        return ((roomy | without_engine) & ~self._rows(refused)).bit_count()

    def has_usable(self, image: str, moment: Moment) -> bool:
        """Return whether a host that takes sessions has an image."""
        healthy = self._facts["is_healthy"] & self._images.having(image)
        return bool(healthy & self._reports.within(moment.max_age, moment.now))

    def has_image(self, image: str, moment: Moment) -> bool:
        """Return whether a host has an image, also if it takes no sessions."""
        having = self._facts["is_known"] & self._images.having(image)
        return self._reports.any_within(moment.max_age, moment.now, having)

    def agents_with(self, image: str) -> list[str]:
        """Return the hosts that had an image by their last report."""
        return [self._agents[row] for row in numbers_of(self._images.having(image))]

    def once_had(self, image: str) -> bool:
        """Return whether a host had an image by its last report, however old that is."""
        return bool(self._facts["is_known"] & self._images.having(image))

    def _with_room(self, wanted: Wanted, moment: Moment) -> Rows:
        """Return the hosts without a lasting obstacle: see `placement.has_room`."""
        responsive = self._reports.within(moment.max_age, moment.now)
        return self._roomy(wanted, self._facts["is_open"] & responsive)

    def _roomy(self, wanted: Wanted, among: Rows) -> Rows:
        """Return the open hosts among these that have what a session needs."""
        if among:
            among &= self._images.having(wanted.image)
        reservation = wanted.reservation
        among = self._amounts["nano_cpus"].at_least(reservation.nano_cpus, among)
        among = self._amounts["memory_bytes"].at_least(reservation.memory_bytes, among)
        among = self._amounts["gpus"].at_least(reservation.gpus, among)
        if wanted.ports:
            among = self._with_ports(wanted.ports, among)
        return among

    def _with_ports(self, ports: Collection[PortRequest], among: Rows) -> Rows:
        tcp = sum(port.protocol is Protocol.TCP for port in ports)
        among = self._amounts["tcp_ports"].at_least(tcp, among)
        among = self._amounts["udp_ports"].at_least(len(ports) - tcp, among)
        for port in ports:
            if port.tls:
                among &= self._facts["has_tls"]
            if port.pinned:
                among &= ~self._amounts["first_port"].at_least(port.pinned + 1, among)
                among = self._amounts["last_port"].at_least(port.pinned, among)
                among &= ~self._ports[port.protocol].having(port.pinned)
        return among

    def _rows(self, agents: Iterable[str]) -> Rows:
        return rows_of(self._row_of[agent] for agent in agents if agent in self._row_of)


def _with(rows: Rows, row: int, *, is_in: bool) -> Rows:
    bit = 1 << row
    return rows | bit if is_in else rows & ~bit


def _without(among: Rows, worse: Rows) -> Rows:
    """Return the rows that are not worse, or all if none is better."""
    better = among & ~worse
    return better or among
