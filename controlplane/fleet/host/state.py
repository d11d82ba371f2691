"""One host in the control plane's memory: its last reports, and the starts in flight to it.

Choosing a host takes the reservation, the pinned ports and one start slot here, in the same step
of the event loop; a prepared container of the session's shape takes the place of the slot.
Reservation, ports and prepared container are released when the host refuses, or when the Watch
sequence passes the started session: from then on the host's own numbers include it. `StartSlots`
describes when the slot is released.

The state changes only through the methods of `HostState`. Each reports the changed part to the
observers in the same step (`host_events`), so that data derived from many hosts, such as the index
of placement, is updated without a look at all hosts. `notify` is called less often: when a message
has been applied and written, or capacity has been returned.
"""

from collections.abc import Callable, Collection
from dataclasses import replace

from controlplane.agent_rpc.client import AgentClient
from controlplane.domain.errors import AgentExcessError, AgentRefusedError
from controlplane.domain.hosts.agents import Agent
from controlplane.domain.hosts.contract import (
    Answer,
    Drain,
    HostReport,
    HostSession,
    ImagesReported,
    SessionsReported,
    SnapshotEnd,
    WatchMessage,
    WrittenSession,
)
from controlplane.domain.hosts.host_events import (
    DoubtChanged,
    FailuresChanged,
    ImagesChanged,
    PortsChanged,
    Reported,
    RoomChanged,
    SlotsChanged,
    SpareChanged,
)
from controlplane.domain.placement.placement import Wanted
from controlplane.domain.placement.start_failures import Owner, StartFailure
from controlplane.fleet.host.facts import HostFacts
from controlplane.fleet.host.in_flight import InFlight
from controlplane.fleet.host.standbys import Standbys

MAX_IMAGES = 100_000  # Maximum per host; the 40,000 of a test fill the disk of a large host

MAX_SESSIONS = 20_000
"""Maximum per host: an agent has up to 1,000 live and keeps some 10,000 ended sessions."""


MAX_SESSION_MEBIBYTES = 192
"""Maximum of all sessions of a host together: 1,000 live ones with the longest labels are 64."""

_ROOM = RoomChanged()
_SLOTS = SlotsChanged()
_SPARE = SpareChanged()


class HostState(HostFacts):
    """Owns the state of one host. Nothing here waits."""

    def __init__(self, row: Agent, client: AgentClient, standbys: Standbys | None = None) -> None:
        super().__init__(row, client)
        self.listeners: list[Callable[[], None]] = []  # Called by `notify`
        self._standbys = standbys or Standbys()
        self._images: frozenset[str] = frozenset()
        self._partial_images: dict[str, int] = {}
        """A set that is being reported in parts; it replaces `_images` when complete."""

    def notify(self) -> None:
        """Notify the listeners that the host or its reservations changed."""
        for listener in self.listeners:
            listener()

    # ---- starts and claims of this process

    def hold(self, internal_id: str, wanted: Wanted) -> None:
        """Hold the reservation and the pinned ports, and a prepared container or a start slot."""
        shape = wanted.shape if self.spare(wanted.shape) else ""
        self._release(internal_id)
        start = InFlight(wanted.reservation, wanted.ports, shape)
        self._in_flight.put(internal_id, start)
        for port in start.ports:
            if port.pinned:
                self._ports.take(port.protocol, port.pinned)
        self._publish(_ROOM)
        self._publish_ports()
        if shape:
            self._publish(_SPARE)
        else:
            self._start_slots.take(internal_id, wanted.account)
            self._publish(_SLOTS)

    def give_back(self, internal_id: str) -> None:
        """Release what a failed attempt holds. Idempotent."""
        self._release(internal_id)
        self._start_slots.end_call(internal_id)
        self._publish(_SLOTS)
        self._sessions.pop(internal_id)
        self._publish_ports()

    def answered(self, internal_id: str, answer: Answer) -> HostSession:
        """Note the answer to an attempt; return the newest state of its session."""
        start = self._in_flight.get(internal_id)
        if start is not None:
            start.answer = answer
        self._remember(answer.session, answer.incarnation)
        seen = self._sessions.get(internal_id)
        self._release_counted()
        self._publish_ports()
        return seen.session if seen is not None else answer.session

    def hold_claim(self, internal_id: str) -> None:
        """Note that a task of this process handles the claim of a standby."""
        self._claiming.add(internal_id)

    def end_claim(self, internal_id: str) -> None:
        """Note that no task of this process handles the claim of a standby any longer."""
        self._claiming.discard(internal_id)
        if self.draining:
            self.notify()  # it may be empty now

    def doubt(self) -> None:
        """Note that the host did not answer a start, or refused a claim."""
        self._set_doubt(is_in_doubt=True)

    def note_failure(
        self, owner: Owner, error: AgentRefusedError, now: float, time: float
    ) -> StartFailure:
        """Note a failed start: see `StartFailures.note`."""
        failure = self._failures.note(owner, error, now, time)
        self._publish(FailuresChanged())
        return failure

    def note_success(self, owner: Owner) -> None:
        """Note a successful start: see `StartFailures.note_success`."""
        self._failures.note_success(owner)
        self._publish(FailuresChanged())

    def note_written(self, session: HostSession) -> None:
        """Note that the row of a live session agrees with a report of the session."""
        self._sessions.note_written(session)

    def confirm_unread(self, session: WrittenSession) -> None:
        """Note that a report that was not parsed is in the row of its session."""
        self._sessions.confirm(session)

    def is_written(self, session: HostSession) -> bool:
        """Return whether the row of a session agrees with its newest report."""
        seen = self._sessions.get(session.internal_id)
        return seen is not None and seen.is_written and seen.session is session

    # ---- reports

    def apply(self, message: WatchMessage, now: float) -> None:
        """Apply one message of the Watch stream.

        Raises:
            AgentExcessError: It exceeds a bound; all reported sessions are forgotten.
        """
        if isinstance(message.event, SnapshotEnd):
            self.note_format(is_newer=False)
        if not self._is_newer:
            self._reported_at = now
            self._publish(Reported(now))
            self._set_doubt(is_in_doubt=False)
        if message.incarnation != self._incarnation:
            self._incarnation = message.incarnation
            self._desired.forget_answers()
        self._sequence = message.sequence
        if isinstance(message.event, HostReport):
            self._apply_host(message.event)
        elif isinstance(message.event, ImagesReported):
            self._apply_images(message.event)
        elif isinstance(message.event, SessionsReported):
            for session in message.event.sessions:
                self._remember(session, message.incarnation)
            for unread in message.event.written:
                self._remember_unread(unread, message.incarnation)
            self.check_sessions(len(self._sessions))
            self._check(self._sessions.bytes >> 20, MAX_SESSION_MEBIBYTES, "MiB of sessions")
        self._release_counted()
        self._publish_ports()

    def check_sessions(self, count: int) -> None:
        """Check a number of reported sessions.

        Raises:
            AgentExcessError: It exceeds the bound; all reported sessions are forgotten.
        """
        self._check(count, MAX_SESSIONS, "sessions")

    def _check(self, count: int, bound: int, what: str) -> None:
        if count > bound:
            self._partial_images.clear()
            self._forget_sessions()
            raise AgentExcessError(f"cannot follow the host: it reports more than {bound} {what}")

    def note_format(self, *, is_newer: bool) -> None:
        """Note whether the host reports a newer format than this program can read."""
        if self._is_newer != is_newer:
            self._is_newer = is_newer
            self._publish(_ROOM)

    def note_tried(self) -> None:
        """Note that the host has reconciled or could not be reached."""
        self._tried = True

    def note_reconciled(self) -> None:
        """Note that the host has reported all its sessions, and that they were written."""
        self._tried = True
        self._reconciled = True
        self._publish(_ROOM)

    def note_unclaimed(self, internal_id: str) -> None:
        """Note a live session without a valid ticket or a known account."""
        self._unclaimed.add(internal_id)

    def note_claimed(self, internal_id: str) -> None:
        """Note that a session has a row: its account may have become known."""
        self._unclaimed.discard(internal_id)

    def note_row(self, row: Agent) -> None:
        """Note a change of the agent's row that is in the database."""
        self._row = row

    def order_drain(self, drain: Drain) -> None:
        """Note a pending drain order, which holds from now on."""
        self._desired.order_drain(drain)
        if self._report is not None:
            self._apply_host(self._report)

    def acknowledge_drain(self, drain: Drain) -> None:
        """Note that the host has acknowledged an order."""
        if self._report is not None and self._report.drain.revision < drain.revision:
            self._apply_host(replace(self._report, drain=drain))

    def remove(self) -> None:
        """Note that the fleet has removed the host."""
        self._removed = True

    def lose(self, now: float) -> None:
        """Give up the host and its sessions as lost."""
        self._lost = now
        self._publish(_ROOM)
        self._forget_sessions()

    def find(self) -> None:
        """Note that a host that was given up as lost has reported."""
        self._lost = None
        self._publish(_ROOM)

    def _forget_sessions(self) -> None:
        self._sessions.clear()
        self._standbys.leave(self.name)
        self._unclaimed.clear()
        self._publish_ports()

    def forget(self, session: HostSession) -> None:
        """Drop a stored, ended session unless a task still handles its start."""
        if not self._is_under_way(session.internal_id):
            self.drop(session.internal_id)

    def is_gone(self, internal_id: str) -> bool:
        """Return whether a session that is absent from the last snapshot is gone.

        False for an attempt in flight, or if the host answered later than the snapshot.
        """
        if self._is_under_way(internal_id):
            return False
        seen = self._sessions.get(internal_id)
        return (
            seen is None
            or seen.incarnation != self._incarnation
            or seen.session.sequence <= self._sequence
        )

    def _is_under_way(self, internal_id: str) -> bool:
        return internal_id in self._claiming or self._in_flight.is_called(internal_id)

    def drop(self, internal_id: str) -> None:
        """Drop a session that is gone."""
        self._sessions.pop(internal_id)
        self._standbys.drop(self.name, internal_id)
        self._unclaimed.discard(internal_id)
        self._publish_ports()

    def drop_absent(self, present: Collection[str]) -> None:
        """Drop every session that is gone, given the ids in the last snapshot."""
        for internal_id in self._sessions.ids:
            if internal_id not in present and self.is_gone(internal_id):
                self.drop(internal_id)

    def _set_doubt(self, *, is_in_doubt: bool) -> None:
        if self._in_doubt != is_in_doubt:
            self._in_doubt = is_in_doubt
            self._publish(DoubtChanged())

    def _apply_images(self, part: ImagesReported) -> None:
        if part.first:
            self._partial_images = {}
        self._partial_images.update(dict.fromkeys(part.images, 0))
        self._partial_images.update(zip(part.images, part.sizes, strict=False))
        self._check(len(self._partial_images), MAX_IMAGES, "images")
        if part.last:
            self._images_known = True
            self._images = frozenset(self._partial_images)
            self._image_sizes = self._partial_images
            self._partial_images = {}
            if self._report is not None:
                self._report = replace(self._report, images=self._images)
                self._publish(ImagesChanged())

    def _apply_host(self, host: HostReport) -> None:
        """Apply a report; its drain order holds unless the stored one is newer."""
        self.latency.announce(host.latency_addresses)
        self._desired.note_report(host.drain, host.warm_pools)
        self._in_flight.count(host.starting)
        draining = host.drain.draining or self._desired.drain.draining
        is_first = self._report is None
        self._report = replace(host, draining=draining, images=self._images)
        slots = (start for start in host.starting if not self._needs_no_slot(start))
        self._start_slots.note_report(list(slots))
        self._publish(_ROOM)
        self._publish(_SLOTS)
        self._publish(_SPARE)
        if is_first:
            self._publish(ImagesChanged())

    def _needs_no_slot(self, internal_id: str) -> bool:
        """Return whether a reported start is known to hold no slot on the host."""
        start = self._in_flight.get(internal_id)
        return internal_id in self._sessions or (start is not None and bool(start.shape))

    def _remember(self, session: HostSession, incarnation: str) -> None:
        self._release_slot(session.internal_id)
        if self._sessions.note(session, incarnation):
            self._standbys.note(self.name, session)

    def _remember_unread(self, session: WrittenSession, incarnation: str) -> None:
        self._release_slot(session.internal_id)
        if self._sessions.note_unread(session, incarnation):
            self._standbys.drop(self.name, session.internal_id)

    def _release_slot(self, internal_id: str) -> None:
        if self._start_slots.note_start(internal_id):
            self._publish(_SLOTS)

    def _release_counted(self) -> None:
        """Release starts that the host's numbers now include."""
        if len(self._in_flight):
            for internal_id in self._in_flight.reported(self._incarnation, self._sequence):
                self._release(internal_id)

    def _release(self, internal_id: str) -> None:
        """Release the reservation, the pinned ports and the prepared container of a start."""
        start = self._in_flight.pop(internal_id)
        if start is None:
            return
        for port in start.ports:
            if port.pinned:
                self._ports.release(port.protocol, port.pinned)
        self._publish(_ROOM)
        if start.shape:
            self._publish(_SPARE)

    def _publish_ports(self) -> None:
        changed = self._ports.pop_changed()
        if changed:
            self._publish(PortsChanged(changed))
