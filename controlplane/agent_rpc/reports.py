"""Parses what a host reports over its Watch stream. Pure."""

from collections.abc import Iterable, Iterator

from controlplane.agent_rpc.wire import check_format, resources_in, session_in
from controlplane.domain.contract import (
    Drain,
    HostReport,
    ImagesReported,
    PoolOnHost,
    SessionsReported,
    SnapshotBegin,
    SnapshotEnd,
    WatchEvent,
    WatchMessage,
)
from tiltyard.agent.v1 import agent_pb2
from tiltyard.contract import PreparedShape
from tiltyard.runtime.clock import from_ms

SESSIONS_AT_ONCE = 250  # Sessions of a message that are read in one step of the event loop


def watch_messages_in(response: agent_pb2.WatchResponse, reached: int) -> Iterator[WatchMessage]:
    """Parse a message of the Watch stream; one of many sessions yields a portion at a time.

    `reached` is the sequence of the message before: until the last portion the host is known up
    to there. Raises as `session_in`.
    """
    sessions = response.sessions.sessions
    first = 0
    while len(sessions) - first > SESSIONS_AT_ONCE:
        portion = sessions[first : first + SESSIONS_AT_ONCE]
        yield WatchMessage(response.incarnation, reached, _sessions_in(portion))
        first += SESSIONS_AT_ONCE
    rest = _watch_event(response, sessions[first:])
    yield WatchMessage(response.incarnation, response.sequence, rest)


def _watch_event(
    response: agent_pb2.WatchResponse, sessions: Iterable[agent_pb2.Session]
) -> WatchEvent | None:
    """Parse the event of a message, which has these `sessions` left."""
    kind = response.WhichOneof("event")
    if kind == "snapshot_begin":
        return SnapshotBegin()
    if kind == "snapshot_end":
        return SnapshotEnd(response.snapshot_end.reconciled)
    if kind == "sessions":
        return _sessions_in(sessions)
    if kind == "host":
        return _host_in(response.host)
    if kind == "images":
        part = response.images
        return ImagesReported(tuple(part.images), part.first, part.last, tuple(part.sizes))
    return None


def _sessions_in(sessions: Iterable[agent_pb2.Session]) -> SessionsReported:
    return SessionsReported(tuple(map(session_in, sessions)))


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
