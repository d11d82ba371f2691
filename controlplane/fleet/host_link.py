"""One host in the control plane's memory: what it reported, and the starts in flight to it.

Choosing a host takes the reservation, the pins and one start slot here, in the same step of the
event loop, so that fifty callers at once do not all pick the same host. They return when the host
refuses, or when the Watch sequence passes the started session: from then on the host's own numbers
include it.
"""

from collections.abc import Collection
from dataclasses import dataclass

from controlplane.fleet.agent_client import AgentClient
from controlplane.fleet.contract import (
    Answer,
    Host,
    HostReported,
    HostSession,
    Port,
    PortRequest,
    Protocol,
    Resources,
    SessionsReported,
    WatchMessage,
)
from controlplane.fleet.placement import HostView, Wanted
from controlplane.storage.fleet_store import AgentRow


@dataclass(frozen=True, slots=True)
class _Seen:
    """A session as it was last heard of, and from which incarnation."""

    session: HostSession
    incarnation: str

    def older_than(self, session: HostSession, incarnation: str) -> bool:
        return self.incarnation != incarnation or self.session.sequence <= session.sequence


@dataclass(slots=True)
class _InFlight:
    """A start that the host's own numbers do not show yet; `answer` is None while it is called."""

    reservation: Resources
    ports: tuple[PortRequest, ...]
    answer: Answer | None = None


class HostLink:
    """The only owner of what is known of one host. Nothing here waits."""

    def __init__(self, row: AgentRow, client: AgentClient) -> None:
        """Know nothing yet of the agent in `row`, which `client` dials."""
        self.row = row
        self.client = client
        self.host: Host | None = None
        self.incarnation = ""
        self.sequence = 0
        self.heard_at: float | None = None
        self.reconciled = False
        self.unclaimed: set[str] = set()
        """What lives there without a valid ticket, by internal id: nobody's sessions."""
        self._sessions: dict[str, _Seen] = {}
        self._in_flight: dict[str, _InFlight] = {}

    @property
    def starting(self) -> frozenset[str]:
        """The attempts that a task of this process is making here and has no answer to."""
        return frozenset(i for i, start in self._in_flight.items() if start.answer is None)

    @property
    def in_flight(self) -> int:
        """How many starts hold a reservation here."""
        return len(self._in_flight)

    @property
    def live_sessions(self) -> int:
        """How many sessions are known to live here, those that are nobody's included."""
        return sum(not seen.session.state.ended for seen in self._sessions.values())

    def silent_seconds(self, now: float) -> float:
        """Tell for how long the host was not heard; for ever when it never was."""
        return float("inf") if self.heard_at is None else now - self.heard_at

    def view(self, now: float) -> HostView | None:
        """Show the host to placement; None before it has reported."""
        if self.host is None or not self.reconciled:
            return None
        starts = self._in_flight.values()
        return HostView(
            agent=self.row.name,
            host=self.host,
            silent_seconds=self.silent_seconds(now),
            held=sum((start.reservation for start in starts), Resources()),
            starting=len(self.starting),
            in_flight=len(starts),
            used_ports=self._used_ports(),
        )

    def hold(self, internal_id: str, wanted: Wanted) -> None:
        """Take the reservation, the pins and a start slot for an attempt."""
        self._in_flight[internal_id] = _InFlight(wanted.reservation, wanted.ports)

    def holds_answer(self, internal_id: str) -> bool:
        """Tell whether an attempt became a session of this host."""
        return internal_id not in self.starting

    def give_back(self, internal_id: str) -> None:
        """Return what an attempt that came to nothing holds. Idempotent."""
        self._in_flight.pop(internal_id, None)
        self._sessions.pop(internal_id, None)

    def answered(self, internal_id: str, answer: Answer) -> HostSession:
        """Note the answer to an attempt; return the newest that is known of its session."""
        start = self._in_flight.get(internal_id)
        if start is not None:
            start.answer = answer
        self._remember(answer.session, answer.incarnation)
        seen = self._sessions.get(internal_id)
        self._release_shown()
        return seen.session if seen is not None else answer.session

    def apply(self, message: WatchMessage, now: float) -> None:
        """Take in one message of the Watch stream."""
        self.heard_at = now
        self.incarnation, self.sequence = message.incarnation, message.sequence
        if isinstance(message.event, HostReported):
            self.host = message.event.host
        elif isinstance(message.event, SessionsReported):
            for session in message.event.sessions:
                self._remember(session, message.incarnation)
        self._release_shown()

    def forget(self, session: HostSession) -> None:
        """Drop an ended session once it is stored, unless its start still has to hear of it."""
        if session.internal_id not in self.starting:
            self.drop(session.internal_id)

    def is_gone(self, internal_id: str) -> bool:
        """Tell whether absence from the snapshot just complete means that a session is gone.

        Not so for an attempt in flight, or when the host answered later than the snapshot.
        """
        if internal_id in self.starting:
            return False
        seen = self._sessions.get(internal_id)
        return (
            seen is None
            or seen.incarnation != self.incarnation
            or seen.session.sequence <= self.sequence
        )

    def drop(self, internal_id: str) -> None:
        """Drop a session that is gone."""
        self._sessions.pop(internal_id, None)
        self.unclaimed.discard(internal_id)

    def drop_absent(self, present: Collection[str]) -> None:
        """Drop every session that is gone, given the ids in the snapshot just complete."""
        for internal_id in list(self._sessions):
            if internal_id not in present and self.is_gone(internal_id):
                self.drop(internal_id)

    def _remember(self, session: HostSession, incarnation: str) -> None:
        seen = self._sessions.get(session.internal_id)
        if seen is None or seen.older_than(session, incarnation):
            self._sessions[session.internal_id] = _Seen(session, incarnation)

    def _release_shown(self) -> None:
        """Return what starts hold that the host's numbers now include.

        A host that was started anew has counted afresh, so the answers of its last life are shown.
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
