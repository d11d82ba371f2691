"""One host in the control plane's memory: its last reports, and the starts in flight to it.

Choosing a host takes the reservation, the pinned ports and one start slot here, in the same step
of the event loop; a prepared container of the session's shape takes the place of the slot.
Reservation, ports and prepared container are released when the host refuses, or when the Watch
sequence passes the started session: from then on the host's own numbers include it. `StartSlots`
describes when the slot is released.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from controlplane.agent_rpc.client import AgentClient
from controlplane.domain.contract import (
    Answer,
    Drain,
    HostReport,
    HostSession,
    ImagesReported,
    Port,
    SessionsReported,
    SnapshotEnd,
    WatchMessage,
)
from controlplane.domain.errors import AgentExcessError
from controlplane.domain.placement import HostView, Wanted
from controlplane.domain.start_failures import Owner, StartFailures
from controlplane.fleet.host.latency import HostLatency
from controlplane.fleet.host.standbys import Standbys
from controlplane.fleet.host.start_slots import StartSlots
from controlplane.storage.tables.fleet import AgentRow
from tiltyard.contract import PortRequest, Protocol, Resources
from tiltyard.runtime.fair_share import exceeds_share

MAX_IMAGES = 100_000  # Maximum per host; the 40,000 of a test fill the disk of a large host

MAX_SESSIONS = 20_000
"""Maximum per host: an agent has up to 1,000 live and keeps some 10,000 ended sessions."""


MAX_SESSION_MEBIBYTES = 192
"""Maximum of all sessions of a host together: 1,000 live ones with the longest labels are 64."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """The last report of a session, and the incarnation that sent it.

    `is_written`: its row says the same.
    """

    session: HostSession
    incarnation: str
    is_written: bool = False

    def older_than(self, session: HostSession, incarnation: str) -> bool:
        return self.incarnation != incarnation or self.session.sequence <= session.sequence


@dataclass(slots=True)
class _InFlight:
    """A start that the host has not reported yet; `answer` is None during the call."""

    reservation: Resources
    ports: tuple[PortRequest, ...]
    shape: str = ""  # That of the prepared container that it counts on, instead of a start slot
    answer: Answer | None = None
    is_counted: bool = False  # The host's own numbers include it


class HostState:
    """Owns the state of one host. Nothing here waits."""

    def __init__(
        self, row: AgentRow, client: AgentClient, standbys: Standbys | None = None
    ) -> None:
        self.name = row.name
        self.row = row
        self.client = client
        self.listeners: list[Callable[[], None]] = []  # Called by `notify`
        self.removed = False  # True once the fleet has removed it
        self.tried = False  # True once it has reconciled or could not be reached
        self._standbys = standbys or Standbys()
        self.report: HostReport | None = None
        self.incarnation = ""
        self.sequence = 0
        self.reported_at: float | None = None
        self.reconciled = False
        self.in_doubt = False
        """True after a start without an answer or a refused claim, until the next report."""
        self.is_newer = False  # True while it reports a newer format than this program can read
        self.drain = row.drain  # The newest drain order, given to the control plane or on the host
        self.lost = row.lost  # When the host and its sessions were given up as lost
        self.latency = HostLatency()
        self.failures = StartFailures()
        self.unclaimed: set[str] = set()
        """Internal ids of live sessions without a valid ticket or a known account."""
        self._images: frozenset[str] = frozenset()
        self.image_sizes: Mapping[str, int] = {}
        """Unpacked bytes of the host's images."""
        self._partial_images: dict[str, int] = {}
        """A set that is being reported in parts; it replaces `_images` when complete."""
        self._sessions: dict[str, _Seen] = {}
        self._session_bytes = 0  # Of the messages that reported `_sessions`
        self._in_flight: dict[str, _InFlight] = {}
        self._start_slots = StartSlots()
        self.claiming: set[str] = set()  # Standbys whose claim a task of this process handles

    def notify(self) -> None:
        """Notify the listeners that the host or its reservations changed."""
        for listener in self.listeners:
            listener()

    @property
    def starting(self) -> frozenset[str]:
        """The attempts whose call from this process has no answer yet."""
        return frozenset(i for i, start in self._in_flight.items() if start.answer is None)

    @property
    def under_way(self) -> frozenset[str]:
        """The attempts and claims whose outcome a task of this process handles."""
        return self.starting | self.claiming

    @property
    def in_flight(self) -> int:
        """The number of starts that hold a reservation here."""
        return len(self._in_flight)

    @property
    def draining(self) -> bool:
        """True if the host is draining, or an order to drain is pending."""
        return self.drain.draining if self.report is None else self.report.draining

    @property
    def drain_pending(self) -> bool:
        """True until the host has reported the newest drain order."""
        reported = Drain() if self.report is None else self.report.drain
        return reported.revision < self.drain.revision

    @property
    def live_sessions(self) -> int:
        """The number of live sessions, including unclaimed ones."""
        return sum(1 for _ in self.live())

    def live(self) -> Iterator[HostSession]:
        """Iterate over the live sessions; do not await meanwhile."""
        for seen in self._sessions.values():
            if not seen.session.state.ended and not seen.session.is_standby:
                yield seen.session

    def report_age(self, now: float) -> float:
        """Return the seconds since the last report; infinite if there was none."""
        return float("inf") if self.reported_at is None else now - self.reported_at

    @property
    def takes_starts(self) -> bool:
        """Return whether any start can begin here now."""
        return self.has_start_slot() or (self.report is not None and bool(self.report.prepared))

    def can_begin(self, wanted: Wanted) -> bool:
        """Return whether a start can begin here now, with a prepared container or in a slot."""
        return self.spare(wanted.shape) > 0 or self.has_start_slot(wanted.account)

    def spare(self, shape: str) -> int:
        """Return how many prepared containers of a shape wait that no start in flight counts on.

        The host's number leaves out those that a start has taken, once it includes the start.
        """
        kept = None if self.report is None else self.report.prepared.get(shape)
        if kept is None:
            return 0
        starts = self._in_flight.values()
        counted_on = sum(start.shape == shape and not start.is_counted for start in starts)
        return max(0, kept.kept - counted_on)

    def has_start_slot(self, account: str = "") -> bool:
        """Return whether a start of an account can begin here now; "" holds no slots."""
        held = self._start_slots.held(account)
        used = self._start_slots.used
        return self.report is not None and not exceeds_share(
            held, 1, used, self.report.start_slots
        )

    def view(self, now: float, owner: Owner = ("", "")) -> HostView | None:
        """Return the host as placement sees it; None before it has reconciled, or if newer."""
        if self.report is None or not self.reconciled or self.is_newer:
            return None
        starts = [start for start in self._in_flight.values() if not start.is_counted]
        return HostView(
            agent=self.name,
            host=self.report,
            report_age=self.report_age(now),
            held=sum((start.reservation for start in starts), Resources()),
            starting=self._start_slots.used,
            starting_of_account=self._start_slots.held(owner[0]),
            in_flight=len(starts),
            spare=self.spare,
            used_ports=cache(self._used_ports),
            latency=self.latency.seconds,
            in_doubt=self.in_doubt,
            failure=self.failures.avoided(owner, now),
        )

    def hold(self, internal_id: str, wanted: Wanted) -> None:
        """Hold the reservation and the pinned ports, and a prepared container or a start slot."""
        shape = wanted.shape if self.spare(wanted.shape) else ""
        self._in_flight[internal_id] = _InFlight(wanted.reservation, wanted.ports, shape)
        if not shape:
            self._start_slots.take(internal_id, wanted.account)

    def give_back(self, internal_id: str) -> None:
        """Release what a failed attempt holds. Idempotent."""
        self._in_flight.pop(internal_id, None)
        self._start_slots.end_call(internal_id)
        self._take_out(internal_id)

    def answered(self, internal_id: str, answer: Answer) -> HostSession:
        """Note the answer to an attempt; return the newest state of its session."""
        start = self._in_flight.get(internal_id)
        if start is not None:
            start.answer = answer
        self._remember(answer.session, answer.incarnation)
        seen = self._sessions.get(internal_id)
        self._release_counted()
        return seen.session if seen is not None else answer.session

    def session(self, internal_id: str) -> HostSession | None:
        """Return the last report of a session on this host."""
        seen = self._sessions.get(internal_id)
        return seen.session if seen is not None else None

    def note_written(self, session: HostSession) -> None:
        """Note that the row of a live session says what a report of it says."""
        seen = self._sessions.get(session.internal_id)
        if seen is not None and (
            seen.session is session or _leave_same_row(session, seen.session)
        ):
            self._sessions[session.internal_id] = _Seen(seen.session, seen.incarnation, True)

    def is_written(self, session: HostSession) -> bool:
        """Return whether the row of a session says what its newest report says."""
        seen = self._sessions.get(session.internal_id)
        return seen is not None and seen.is_written and seen.session is session

    def apply(self, message: WatchMessage, now: float) -> None:
        """Apply one message of the Watch stream.

        Raises:
            AgentExcessError: It exceeds a bound; all reported sessions are forgotten.
        """
        if isinstance(message.event, SnapshotEnd):
            self.is_newer = False
        if not self.is_newer:
            self.reported_at = now
            self.in_doubt = False
        self.incarnation = message.incarnation
        self.sequence = message.sequence
        if isinstance(message.event, HostReport):
            self._apply_host(message.event)
        elif isinstance(message.event, ImagesReported):
            self._apply_images(message.event)
        elif isinstance(message.event, SessionsReported):
            for session in message.event.sessions:
                self._remember(session, message.incarnation)
            self.check_sessions(len(self._sessions))
            self._check(self._session_bytes >> 20, MAX_SESSION_MEBIBYTES, "MiB of sessions")
        self._release_counted()

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

    def order_drain(self, drain: Drain) -> None:
        """Note a pending drain order, which holds from now on."""
        self.drain = drain
        if self.report is not None:
            self._apply_host(self.report)

    def acknowledge_drain(self, drain: Drain) -> None:
        """Note that the host has acknowledged an order."""
        if self.report is not None and self.report.drain.revision < drain.revision:
            self._apply_host(replace(self.report, drain=drain))

    def lose(self, now: float) -> None:
        """Give up the host and its sessions as lost."""
        self.lost = now
        self._forget_sessions()

    def _forget_sessions(self) -> None:
        self._sessions.clear()
        self._session_bytes = 0
        self._standbys.leave(self.name)
        self.unclaimed.clear()

    def forget(self, session: HostSession) -> None:
        """Drop a stored, ended session unless a task still handles its start."""
        if session.internal_id not in self.under_way:
            self.drop(session.internal_id)

    def is_gone(self, internal_id: str) -> bool:
        """Return whether a session that is absent from the last snapshot is gone.

        False for an attempt in flight, or if the host answered later than the snapshot.
        """
        if internal_id in self.under_way:
            return False
        seen = self._sessions.get(internal_id)
        return (
            seen is None
            or seen.incarnation != self.incarnation
            or seen.session.sequence <= self.sequence
        )

    def drop(self, internal_id: str) -> None:
        """Drop a session that is gone."""
        self._take_out(internal_id)
        self._standbys.drop(self.name, internal_id)
        self.unclaimed.discard(internal_id)

    def _take_out(self, internal_id: str) -> None:
        seen = self._sessions.pop(internal_id, None)
        if seen is not None:
            self._session_bytes -= seen.session.size

    def drop_absent(self, present: Collection[str]) -> None:
        """Drop every session that is gone, given the ids in the last snapshot."""
        for internal_id in list(self._sessions):
            if internal_id not in present and self.is_gone(internal_id):
                self.drop(internal_id)

    def _apply_images(self, part: ImagesReported) -> None:
        if part.first:
            self._partial_images = {}
        self._partial_images.update(dict.fromkeys(part.images, 0))
        self._partial_images.update(zip(part.images, part.sizes, strict=False))
        self._check(len(self._partial_images), MAX_IMAGES, "images")
        if part.last:
            self._images = frozenset(self._partial_images)
            self.image_sizes = self._partial_images
            self._partial_images = {}
            if self.report is not None:
                self.report = replace(self.report, images=self._images)

    def _apply_host(self, host: HostReport) -> None:
        """Apply a report; its drain order holds unless the stored one is newer."""
        self.latency.announce(host.latency_addresses)
        if host.drain.revision >= self.drain.revision:
            self.drain = host.drain
        for internal_id in host.starting & self._in_flight.keys():
            self._in_flight[internal_id].is_counted = True
        draining = host.drain.draining or self.drain.draining
        self.report = replace(host, draining=draining, images=self._images)
        slots = (start for start in host.starting if not self._needs_no_slot(start))
        self._start_slots.note_report(list(slots))

    def _needs_no_slot(self, internal_id: str) -> bool:
        """Return whether a start that the host reports holds no slot there, as far as is known."""
        start = self._in_flight.get(internal_id)
        return internal_id in self._sessions or (start is not None and bool(start.shape))

    def _remember(self, session: HostSession, incarnation: str) -> None:
        self._start_slots.note_start(session.internal_id)
        seen = self._sessions.get(session.internal_id)
        if seen is None or seen.older_than(session, incarnation):
            is_written = (
                seen is not None and seen.is_written and _leave_same_row(session, seen.session)
            )
            before = 0 if seen is None else seen.session.size
            self._session_bytes += session.size - before
            self._sessions[session.internal_id] = _Seen(session, incarnation, is_written)
            self._standbys.note(self.name, session)

    def _release_counted(self) -> None:
        """Release starts that the host's numbers now include.

        A restarted agent counts from zero, so its numbers include all earlier answers.
        """
        for internal_id, start in list(self._in_flight.items()):
            answer = start.answer
            if answer is not None and (
                answer.incarnation != self.incarnation or answer.session.sequence <= self.sequence
            ):
                del self._in_flight[internal_id]

    def _used_ports(self) -> frozenset[tuple[Protocol, int]]:
        pinned = {
            (port.protocol, port.pinned)
            for start in self._in_flight.values()
            for port in start.ports
            if port.pinned
        }
        ports: list[Port] = [
            port
            for seen in self._sessions.values()
            if not seen.session.state.ended
            for port in seen.session.ports
        ]
        return frozenset(pinned | {(port.protocol, port.host) for port in ports})


def _leave_same_row(session: HostSession, other: HostSession) -> bool:
    """Return whether two reports of a live session leave the same row."""
    if session.is_standby or session.state.ended:
        return False
    as_other = replace(session, sequence=other.sequence, ready_time=other.ready_time)
    return as_other == other
