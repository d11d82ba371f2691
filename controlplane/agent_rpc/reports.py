"""Parses what a host reports over its Watch stream. Pure."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from controlplane.agent_rpc.wire import (
    STATE_OF,
    check_format,
    resources_in,
    session_in,
    written_in,
)
from controlplane.domain.hosts.contract import (
    Drain,
    HostReport,
    HostSession,
    ImagesReported,
    PoolOnHost,
    SessionsReported,
    SnapshotBegin,
    SnapshotEnd,
    WatchEvent,
    WatchMessage,
    WrittenSession,
)
from controlplane.domain.hosts.reported_sessions import LastReport
from controlplane.domain.hosts.written import Written
from tiltyard.agent.v1 import agent_pb2
from tiltyard.contract import PreparedShape
from tiltyard.runtime.clock import from_ms

SESSIONS_AT_ONCE = 250  # Sessions of a message that are read in one step of the event loop

_ENDED = {number for number, state in STATE_OF.items() if state.ended}

FindLastReport = Callable[[str], LastReport | None]
"""Returns the last report of a session of the host by its internal id."""


def nothing_seen(_: str) -> None:
    """Find no report: every session is parsed."""


@dataclass(frozen=True, slots=True)
class KnownReports:
    """The reports that are not parsed again: those in memory and those in rows."""

    find_seen: FindLastReport = nothing_seen
    written: Written = field(default_factory=Written)

    def is_written(self, session: agent_pb2.Session, incarnation: str) -> bool:
        """Return whether a report is of a live session and in its row."""
        return (
            session.sequence <= self.written.sequence
            and incarnation == self.written.incarnation
            and session.state not in _ENDED
            and not session.warm_pool
            and not session.in_doubt
        )


NOTHING_KNOWN = KnownReports()


def watch_messages_in(
    response: agent_pb2.WatchResponse, reached: int, known: KnownReports = NOTHING_KNOWN
) -> Iterator[WatchMessage]:
    """Parse a message of the Watch stream; one of many sessions yields a portion at a time.

    `reached` is the sequence of the message before: until the last portion the host is known up
    to there. A report that is known, as that of a claim that was answered, is not parsed again.
    Raises as `session_in`.
    """
    incarnation = response.incarnation
    sessions = response.sessions.sessions
    first = 0
    while len(sessions) - first > SESSIONS_AT_ONCE:
        portion = sessions[first : first + SESSIONS_AT_ONCE]
        event = _sessions_in(portion, incarnation, known)
        yield WatchMessage(incarnation, reached, event)
        first += SESSIONS_AT_ONCE
    rest: WatchEvent | None
    if response.WhichOneof("event") == "sessions":
        rest = _sessions_in(sessions[first:], incarnation, known)
    else:
        rest = _watch_event(response)
    yield WatchMessage(incarnation, response.sequence, rest)


def _watch_event(response: agent_pb2.WatchResponse) -> WatchEvent | None:
    """Parse the event of a message without sessions."""
    kind = response.WhichOneof("event")
    if kind == "snapshot_begin":
        return SnapshotBegin()
    if kind == "snapshot_end":
        return SnapshotEnd(response.snapshot_end.reconciled)
    if kind == "host":
        return _host_in(response.host)
    if kind == "images":
        part = response.images
        return ImagesReported(tuple(part.images), part.first, part.last, tuple(part.sizes))
    return None


def _sessions_in(
    sessions: Iterable[agent_pb2.Session], incarnation: str, known: KnownReports
) -> SessionsReported:
    read: list[HostSession] = []
    written: list[WrittenSession] = []
    for session in sessions:
        if known.is_written(session, incarnation):
            written.append(written_in(session))
            continue
        seen = known.find_seen(session.internal_id)
        is_same = seen is not None and seen.is_of(incarnation, session.sequence)
        read.append(seen.session if seen is not None and is_same else session_in(session))
    return SessionsReported(tuple(read), tuple(written))


def _host_in(host: agent_pb2.Host) -> HostReport:
    check_format("host", host.format)
    return HostReport(
        agent_id=host.agent_id,
        version=host.version,
        public_address=host.public_address,
        latency_addresses=tuple(host.latency_addresses),
        capacity=resources_in(host.capacity),
        reserved=resources_in(host.reserved),
        free_sessions=host.free_sessions,
        port_range_first=host.port_range_first,
        port_range_last=host.port_range_last,
        free_tcp_ports=host.free_tcp_ports,
        free_udp_ports=host.free_udp_ports,
        images=frozenset(),
        tls=host.tls,
        draining=host.draining,
        engine_available=host.engine_available,
        start_slots=host.start_slots,
        disk_full=host.disk_full,
        drain=_drain_in(host),
        engine_version=host.engine_version,
        runc_version=host.runc_version,
        kernel_version=host.kernel_version,
        platform=host.platform,
        warm_pools={
            pool.pool_id: PoolOnHost(pool.revision, pool.size) for pool in host.warm_pools
        },
        starting=frozenset(host.starting),
        free_image_bytes=host.free_image_bytes if host.HasField("free_image_bytes") else None,
        prepared={
            shape.key: PreparedShape(shape.key, shape.image, shape.kept, shape.error)
            for shape in host.prepared
        },
    )


def _drain_in(host: agent_pb2.Host) -> Drain:
    deadline = None
    if host.HasField("drain_time"):  # the agent stores an inexact float
        deadline = from_ms(round(host.drain_time.ToNanoseconds() / 10**6))
    return Drain(host.drain_revision, host.draining, deadline)
