"""The sessions that one host reports, and the host ports that they and starts in flight take."""

from collections.abc import Iterator
from dataclasses import fields
from operator import attrgetter
from typing import NamedTuple

from controlplane.domain.hosts.contract import HostSession, WrittenSession
from controlplane.domain.hosts.host_events import PortOnHost
from tiltyard.contract import Protocol
from tiltyard.records import record

_without_sequence = attrgetter(
    *(each.name for each in fields(HostSession) if each.compare and each.name != "sequence")
)
"""Returns the fields of a report on which the row of the session depends."""


class TakenPorts:
    """The host ports that are in use, as far as is known; several may use the same one."""

    def __init__(self) -> None:
        self.by_protocol: dict[Protocol, dict[int, int]] = {each: {} for each in Protocol}
        """The number of uses of each port, without zeros."""
        self._changed: list[PortOnHost] = []

    def take(self, protocol: Protocol, port: int) -> None:
        """Note one more use of a port."""
        uses = self.by_protocol[protocol]
        if port in uses:
            uses[port] += 1
        else:
            uses[port] = 1
            self._changed.append((protocol, port))

    def release(self, protocol: Protocol, port: int) -> None:
        """Note the end of one use of a port."""
        uses = self.by_protocol[protocol]
        uses[port] -= 1
        if not uses[port]:
            del uses[port]
            self._changed.append((protocol, port))

    def all(self) -> frozenset[PortOnHost]:
        """Return the ports in use."""
        return frozenset(
            (protocol, port) for protocol, uses in self.by_protocol.items() for port in uses
        )

    def pop_changed(self) -> tuple[PortOnHost, ...]:
        """Return each port as often as it was taken or released since the last call."""
        if not self._changed:
            return ()
        changed = tuple(self._changed)
        self._changed.clear()
        return changed


@record(frozen=True, slots=True)
class LastReport:
    """The last report of a session, and the incarnation that sent it.

    `is_written`: its row says the same.
    """

    session: HostSession
    incarnation: str
    is_written: bool = False

    def is_of(self, incarnation: str, sequence: int) -> bool:
        """Return whether this is the report with a sequence of an incarnation."""
        return self.session.sequence == sequence and self.incarnation == incarnation


class _Unread(NamedTuple):
    """The last report of a session, which `get` parses; the fields are those of `LastReport`."""

    session: WrittenSession
    incarnation: str
    is_written: bool


class ReportedSessions:
    """Owns the newest reports of the sessions of one host."""

    def __init__(self, ports: TakenPorts) -> None:
        self._seen: dict[str, LastReport | _Unread] = {}
        self._ports = ports
        self.bytes = 0
        """The size of the messages that reported the sessions."""

    def __len__(self) -> int:
        return len(self._seen)

    def __contains__(self, internal_id: str) -> bool:
        return internal_id in self._seen

    def __iter__(self) -> Iterator[HostSession | WrittenSession]:
        return (seen.session for seen in self._seen.values())

    @property
    def ids(self) -> list[str]:
        """The internal ids of the sessions."""
        return list(self._seen)

    def get(self, internal_id: str) -> LastReport | None:
        """Return the last report of a session; one that cannot be read is forgotten."""
        seen = self._seen.get(internal_id)
        if not isinstance(seen, _Unread):
            return seen
        try:
            session = seen.session.read()
        except ValueError:
            self.pop(internal_id)
            return None
        read = self._seen[internal_id] = LastReport(session, seen.incarnation, seen.is_written)
        return read

    def note(self, session: HostSession, incarnation: str) -> bool:
        """Note a report; return False if a newer one of the session is known."""
        noted = self._seen.get(session.internal_id)
        if noted is not None and not _is_older(noted, session, incarnation):
            return False
        if noted is not None and noted.session is session and noted.incarnation == incarnation:
            return True
        seen = self.get(session.internal_id)
        is_written = seen is not None and seen.is_written and leave_same_row(session, seen.session)
        before = None if seen is None else seen.session
        self._seen[session.internal_id] = LastReport(session, incarnation, is_written)
        self._change(session, before)
        return True

    def note_unread(self, session: WrittenSession, incarnation: str) -> bool:
        """Note a report without parsing it; return False if a newer one is known."""
        seen = self._seen.get(session.internal_id)
        if seen is not None and not _is_older(seen, session, incarnation):
            return False
        self._seen[session.internal_id] = _Unread(session, incarnation, is_written=False)
        self._change(session, None if seen is None else seen.session)
        return True

    def _change(
        self, session: HostSession | WrittenSession, before: HostSession | WrittenSession | None
    ) -> None:
        """Count the bytes and ports of a new report, and no longer those of the one before."""
        self.bytes += session.size - (0 if before is None else before.size)
        if before is None:
            self._take_ports(session)
        elif before.ports != session.ports or before.state.ended != session.state.ended:
            self._take_ports(session)
            self._release_ports(before)

    def note_written(self, session: HostSession) -> None:
        """Note that the row of a live session says what a report of it says."""
        seen = self.get(session.internal_id)
        if seen is not None and (seen.session is session or leave_same_row(session, seen.session)):
            self._seen[session.internal_id] = LastReport(seen.session, seen.incarnation, True)

    def confirm(self, session: WrittenSession) -> None:
        """Note that a report that was not parsed is in the row of its session."""
        seen = self._seen.get(session.internal_id)
        if isinstance(seen, _Unread) and seen.session is session:
            self._seen[session.internal_id] = seen._replace(is_written=True)

    def pop(self, internal_id: str) -> None:
        """Forget a session."""
        seen = self._seen.pop(internal_id, None)
        if seen is not None:
            self.bytes -= seen.session.size
            self._release_ports(seen.session)

    def clear(self) -> None:
        """Forget all sessions."""
        for session in self:
            self._release_ports(session)
        self._seen.clear()
        self.bytes = 0

    def _take_ports(self, session: HostSession | WrittenSession) -> None:
        if not session.state.ended:
            for port in session.ports:
                self._ports.take(port.protocol, port.host)

    def _release_ports(self, session: HostSession | WrittenSession) -> None:
        if not session.state.ended:
            for port in session.ports:
                self._ports.release(port.protocol, port.host)


def _is_older(
    seen: LastReport | _Unread, session: HostSession | WrittenSession, incarnation: str
) -> bool:
    """Return whether a report is not older than the one that was seen."""
    return seen.incarnation != incarnation or seen.session.sequence <= session.sequence


def leave_same_row(session: HostSession, other: HostSession) -> bool:
    """Return whether two reports of a live session leave the same row."""
    if session.is_standby or session.state.ended:
        return False
    return _without_sequence(session) == _without_sequence(other)
