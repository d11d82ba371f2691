"""Messages of agent.proto as the agent's own data, and back. Refuses what does not fit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from agent.errors import InvalidArgument
from agent.host import HostReport
from agent.images import checked_reference
from agent.session import (
    FORMAT,
    EndReason,
    Identity,
    NetworkMode,
    Port,
    PortRequest,
    Protocol,
    Resources,
    Session,
    SessionSpec,
    State,
)
from tiltyard.agent.v1 import agent_pb2 as pb

LONGEST_ID = 256
LONGEST_TTL_SECONDS = 8760 * 3600
LARGEST_PORT = 65535

_STATES = {state: pb.State.Value(f"STATE_{state.name}") for state in State}
_REASONS = {reason: pb.EndReason.Value(f"END_REASON_{reason.name}") for reason in EndReason}
_PROTOCOLS = {pb.PROTOCOL_TCP: Protocol.TCP, pb.PROTOCOL_UDP: Protocol.UDP}
_TO_PROTOCOL = {protocol: number for number, protocol in _PROTOCOLS.items()}
_MODES = {
    pb.NETWORK_MODE_BRIDGE: NetworkMode.BRIDGE,
    pb.NETWORK_MODE_HOST: NetworkMode.HOST,
}


def spec_from_proto(spec: pb.SessionSpec) -> SessionSpec:
    """Read a spec; InvalidArgument names the field that does not fit."""
    if spec.format != FORMAT:
        raise InvalidArgument("spec.format", f"this agent knows {FORMAT}")
    if spec.network_mode not in _MODES:
        raise InvalidArgument("spec.network_mode", "it is not set")
    reservation = _resources(spec.reservation, "spec.reservation")
    limits = _resources(spec.limits, "spec.limits")
    if limits.nano_cpus < reservation.nano_cpus or limits.memory_bytes < reservation.memory_bytes:
        raise InvalidArgument("spec.limits", "they are below the reservation")
    _refuse_nul("spec.args", spec.args)
    _refuse_nul("spec.env", [*spec.env.keys(), *spec.env.values()])
    if any(not name or "=" in name for name in spec.env):
        raise InvalidArgument("spec.env", "a name is empty or holds '='")
    return SessionSpec(
        identity=_identity(spec.identity),
        image=checked_reference(spec.image),
        network_mode=_MODES[spec.network_mode],
        reservation=reservation,
        limits=limits,
        args=tuple(spec.args),
        env=dict(spec.env),
        restart=spec.restart,
        ttl=_ttl(spec),
        ports=_port_requests(spec.ports),
    )


def session_to_proto(session: Session) -> pb.Session:
    """Write a session."""
    message = pb.Session(
        format=FORMAT,
        internal_id=session.internal_id,
        identity=identity_to_proto(session.spec.identity),
        image=session.spec.image,
        state=_STATES[session.state],
        ports=[_port_to_proto(port) for port in session.ports],
        reservation=resources_to_proto(session.spec.reservation),
        injected_env=session.injected_env,
        exit_code=session.exit_code,
        restart_count=session.restart_count,
        detail=session.detail,
        sequence=session.sequence,
        host=session.host,
        pid=session.process.pid if session.process else 0,
        log_sealed=session.log_sealed,
    )
    if session.end_reason is not None:
        message.end_reason = _REASONS[session.end_reason]
    expire_time = session.deadline.expire_time if session.deadline else None
    for field, seconds in (
        (message.create_time, session.create_time),
        (message.start_time, session.start_time),
        (message.expire_time, expire_time),
        (message.end_time, session.end_time),
    ):
        if seconds is not None:
            field.FromNanoseconds(round(seconds * 1e9))
    return message


def host_to_proto(report: HostReport) -> pb.Host:
    """Write a host."""
    first, last = report.port_range
    return pb.Host(
        format=FORMAT,
        agent_id=report.agent_id,
        version=report.version,
        public_address=report.public_address,
        latency_addresses=report.latency_addresses,
        capacity=resources_to_proto(report.capacity),
        reserved=resources_to_proto(report.reserved),
        free_sessions=report.free_sessions,
        port_range_first=first,
        port_range_last=last,
        free_tcp_ports=report.free_tcp_ports,
        free_udp_ports=report.free_udp_ports,
        images=report.images,
        engine_available=report.engine_available,
        engine_version=report.engine_version,
        start_slots=report.start_slots,
        warnings=report.warnings,
    )


def identity_to_proto(identity: Identity) -> pb.Identity:
    """Write an identity."""
    return pb.Identity(
        account=identity.account,
        session_id=identity.session_id,
        application=identity.application,
        tag=identity.tag,
        location=identity.location,
        labels=identity.labels,
        external_id=identity.external_id,
        ticket=bytes.fromhex(identity.ticket),
    )


def resources_to_proto(resources: Resources) -> pb.Resources:
    """Write an amount of a host."""
    return pb.Resources(
        nano_cpus=resources.nano_cpus,
        memory_bytes=resources.memory_bytes,
        gpus=resources.gpus,
    )


def batches(sessions: Iterable[Session], *, limit: int) -> Iterator[pb.SessionBatch]:
    """Sessions in messages of at most `limit` bytes, but for a single one that is larger."""
    batch, size = pb.SessionBatch(), 0
    for session in sessions:
        message = session_to_proto(session)
        cost = message.ByteSize() + 8
        if batch.sessions and size + cost > limit:
            yield batch
            batch, size = pb.SessionBatch(), 0
        batch.sessions.append(message)
        size += cost
    if batch.sessions:
        yield batch


def page_to_token(last: Session) -> str:
    """The token of the page after this session."""
    return f"{last.create_time.hex()}~{last.internal_id}"


def page_from_token(token: str) -> tuple[float, str]:
    """What a page begins after; InvalidArgument for a token that was never given."""
    if not token:
        return (-math.inf, "")
    time, _, internal_id = token.partition("~")
    try:
        return (float.fromhex(time), internal_id)
    except (ValueError, OverflowError):
        raise InvalidArgument("page_token", "it is not one of this agent") from None


def _identity(identity: pb.Identity) -> Identity:
    if not 1 <= len(identity.session_id) <= LONGEST_ID:
        raise InvalidArgument("spec.identity.session_id", f"it is not 1 to {LONGEST_ID} long")
    _refuse_nul("spec.identity", [identity.session_id, identity.account, identity.application])
    if not identity.account or not identity.application:
        raise InvalidArgument("spec.identity", "account and application are needed")
    return Identity(
        account=identity.account,
        session_id=identity.session_id,
        application=identity.application,
        tag=identity.tag,
        location=identity.location,
        labels=dict(identity.labels),
        external_id=identity.external_id,
        ticket=identity.ticket.hex(),
    )


def _resources(resources: pb.Resources, field: str) -> Resources:
    if resources.nano_cpus <= 0 or resources.memory_bytes <= 0 or resources.gpus < 0:
        raise InvalidArgument(field, "cores and memory must be positive")
    return Resources(resources.nano_cpus, resources.memory_bytes, resources.gpus)


def _ttl(spec: pb.SessionSpec) -> float | None:
    if not spec.HasField("ttl"):
        return None
    seconds = spec.ttl.seconds + spec.ttl.nanos / 1e9
    if not 0 < seconds <= LONGEST_TTL_SECONDS:
        raise InvalidArgument("spec.ttl", "it is not positive, or longer than 8760 hours")
    return seconds


def _port_requests(ports: Iterable[pb.PortRequest]) -> tuple[PortRequest, ...]:
    requests: list[PortRequest] = []
    for index, port in enumerate(ports):
        field = f"spec.ports[{index}]"
        if port.protocol not in _PROTOCOLS:
            raise InvalidArgument(field, "its protocol is not set")
        if not 1 <= port.container_port <= LARGEST_PORT or port.pinned_host_port > LARGEST_PORT:
            raise InvalidArgument(field, f"a port is not in 1 to {LARGEST_PORT}")
        if port.tls:
            raise InvalidArgument(field, "this agent does not end TLS")
        request = PortRequest(
            port.container_port, _PROTOCOLS[port.protocol], port.tls, port.pinned_host_port
        )
        requests.append(request)
    if len({(request.container, request.protocol) for request in requests}) < len(requests):
        raise InvalidArgument("spec.ports", "a port is there twice")
    return tuple(requests)


def _port_to_proto(port: Port) -> pb.Port:
    return pb.Port(
        container_port=port.container,
        protocol=_TO_PROTOCOL[port.protocol],
        host_port=port.host,
        tls=port.tls,
    )


def _refuse_nul(field: str, texts: Iterable[str]) -> None:
    if any("\0" in text for text in texts):
        raise InvalidArgument(field, "it holds a NUL character")
