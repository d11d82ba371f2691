"""Conversion between the protobuf messages of the agent contract and domain values. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache, partial

from google.protobuf.timestamp_pb2 import Timestamp

from controlplane.domain.hosts.contract import (
    Claim,
    Drain,
    HostSession,
    Port,
    RegistryLogin,
    StandbyOrder,
    WrittenSession,
)
from controlplane.domain.hosts.reported_sessions import LastReport
from tiltyard.agent.bounds import MOST_BYTES
from tiltyard.agent.checked import OutOfBoundsError, items, number, span, text
from tiltyard.agent.v1 import agent_pb2
from tiltyard.agent.wire import (
    CAPABILITIES,
    END_REASONS,
    NETWORK_MODES,
    PROTOCOLS,
    STATES,
    duration_to_proto,
    identity_from_proto,
    identity_to_proto,
    interned,
    resources_to_proto,
)
from tiltyard.contract import FORMAT, Identity, Resources, SessionSpec
from tiltyard.runtime.clock import from_ms, to_ms

PROTOCOL_NAMES = {number: protocol for protocol, number in PROTOCOLS.items()}
STATE_OF = {number: state for state, number in STATES.items()}
END_REASON_OF = {number: reason for reason, number in END_REASONS.items()}
_shared = lru_cache(maxsize=1024)(Resources)  # Shared by the sessions of an application
_port = lru_cache(maxsize=16384)(Port)  # Shared by hosts with the same range of ports


@lru_cache(maxsize=4096)
def _image(image: str) -> str:
    """Return the same text for the sessions of an image. Raises OutOfBoundsError."""
    return text(image, "Session.image")


@lru_cache(maxsize=16384)
def _name(name: str) -> str:
    """Return the same text for the sessions of an application. Raises OutOfBoundsError."""
    return text(name, "Identity.application")


@lru_cache(maxsize=16384)
def _host(host: str) -> str:
    """Return the same text for the sessions of a host. Raises OutOfBoundsError."""
    return text(host, "Session.host")


class NewerFormatError(ValueError):
    """A newer agent has sent a format that this program cannot read."""

    def __init__(self, what: str, number: int) -> None:
        super().__init__(
            f"its {what} has format {number}, and this control plane reads up to {FORMAT}:"
            " control planes are upgraded before agents"
        )


def spec_out(spec: SessionSpec) -> agent_pb2.SessionSpec:
    """Convert a session spec."""
    return agent_pb2.SessionSpec(
        format=FORMAT,
        identity=identity_to_proto(spec.identity),
        image=spec.image,
        args=spec.args,
        env=dict(spec.env),
        restart=spec.restart,
        ttl=duration_to_proto(spec.ttl),
        network_mode=NETWORK_MODES[spec.network_mode],
        reservation=resources_to_proto(spec.reservation),
        limits=resources_to_proto(spec.limits),
        ports=[
            agent_pb2.PortRequest(
                container_port=port.container,
                protocol=PROTOCOLS[port.protocol],
                tls=port.tls,
                pinned_host_port=port.pinned,
                same=port.same,
            )
            for port in spec.ports
        ],
        disk_bytes=spec.disk_bytes,
        pids=spec.pids,
        shm_bytes=spec.shm_bytes,
        stop_signal=spec.stop_signal,
        stop_grace=duration_to_proto(spec.stop_grace or None),
        capabilities=[CAPABILITIES[each] for each in spec.capabilities],
        image_init=spec.image_init,
        contiguous=spec.contiguous,
    )


def claim_out(claim: Claim, identity: Identity, known: LastReport | None) -> agent_pb2.Claim:
    """Convert a claim, with its identity and ticket, of a standby as far as it is known."""
    return agent_pb2.Claim(
        internal_id=claim.internal_id,
        identity=identity_to_proto(identity),
        ttl=duration_to_proto(claim.ttl),
        request_json=claim.request,
        again=claim.again,
        known_sequence=0 if known is None else known.session.sequence,
        known_incarnation="" if known is None else known.incarnation,
    )


def standby_order_out(order: StandbyOrder) -> agent_pb2.SetWarmPoolRequest:
    """Convert a warm pool order."""
    return agent_pb2.SetWarmPoolRequest(
        revision=order.revision,
        pool_id=order.pool_id,
        size=order.size,
        spec=None if order.spec is None else spec_out(order.spec),
        claim_signal=order.claim_signal,
    )


def shapes_out(shapes: Iterable[SessionSpec]) -> agent_pb2.SetShapesRequest:
    """Convert an order of prepared containers."""
    return agent_pb2.SetShapesRequest(shapes=map(spec_out, shapes))


def credentials_out(login: RegistryLogin | None) -> agent_pb2.RegistryCredentials | None:
    """Convert a registry login."""
    if login is None:
        return None
    return agent_pb2.RegistryCredentials(username=login.username, password=login.password)


def session_in(session: agent_pb2.Session) -> HostSession:
    """Parse a session; strings that many sessions share are shared.

    A restarted control plane reads every session of the fleet here: docs/performance.md.

    Raises:
        NewerFormatError: A newer agent has sent it.
        OutOfBoundsError: A field is out of its bounds.
    """
    check_format("session", session.format)
    size = session.ByteSize()
    if size > MOST_BYTES["Session"]:
        raise OutOfBoundsError("Session")
    known = session.HasField
    end_reason = session.end_reason
    env = items(session.injected_env, "Session.injected_env")
    return HostSession(
        text(session.internal_id, "Session.internal_id"),
        identity_from_proto(session.identity),
        _image(session.image),
        STATE_OF[session.state],
        tuple([_port_in(port) for port in items(session.ports, "Session.ports")]),
        resources_in(session.reservation),
        interned(env),
        time_in(session.create_time, "Session.create_time"),
        time_in(session.end_time, "Session.end_time") if known("end_time") else None,
        session.exit_code if known("exit_code") else None,
        END_REASON_OF[end_reason] if end_reason else None,
        text(session.detail, "Session.detail"),
        number(session.sequence, "Session.sequence"),
        _host(session.host),
        time_in(session.ready_time, "Session.ready_time") if known("ready_time") else None,
        time_in(session.failure_time, "Session.failure_time") if known("failure_time") else None,
        text(session.warm_pool, "Session.warm_pool"),
        number(session.warm_pool_revision, "Session.warm_pool_revision"),
        session.in_doubt,
        size,
        time_in(session.state_time, "Session.state_time") if known("state_time") else None,
        has_run=known("start_time"),
        forced=session.forced,
    )


def written_in(session: agent_pb2.Session) -> WrittenSession:
    """Parse what is needed of each live session. Raises as `session_in`."""
    check_format("session", session.format)
    identity = session.identity
    return WrittenSession(
        text(session.internal_id, "Session.internal_id"),
        _name(identity.account),
        _name(identity.application),
        STATE_OF[session.state],
        tuple([_port_in(port) for port in items(session.ports, "Session.ports")]),
        number(session.sequence, "Session.sequence"),
        session.ByteSize(),
        partial(session_in, session),
    )


def claimed_in(
    claimed: agent_pb2.Claimed, standby: HostSession, identity: Identity, identity_bytes: int
) -> HostSession:
    """Return the session that a claim has made of a standby. Raises as `session_in`."""
    size = claimed.ByteSize()
    if size > MOST_BYTES["Claimed"]:
        raise OutOfBoundsError("Claimed")
    changed = interned(items(claimed.injected_env, "Claimed.injected_env"))
    return replace(
        standby,
        identity=identity,
        injected_env={**standby.injected_env, **changed},
        sequence=number(claimed.sequence, "Claimed.sequence"),
        warm_pool="",
        in_doubt=False,
        size=standby.size + identity_bytes + size,
    )


def _port_in(port: agent_pb2.Port) -> Port:
    return _port(
        number(port.container_port, "Port.container_port"),
        PROTOCOL_NAMES[port.protocol],
        number(port.host_port, "Port.host_port"),
        port.tls,
    )


def time_in(time: Timestamp, field: str) -> float:
    """Parse a point in time.

    Raises:
        OutOfBoundsError: The field is out of its bounds.
    """
    span(time, field)
    return from_ms(time.seconds * 1000 + time.nanos // 1_000_000)


def resources_in(resources: agent_pb2.Resources) -> Resources:
    """Parse resources. Raises OutOfBoundsError."""
    return _shared(
        number(resources.nano_cpus, "Resources.nano_cpus"),
        number(resources.memory_bytes, "Resources.memory_bytes"),
        number(resources.gpus, "Resources.gpus"),
    )


def check_format(what: str, number: int) -> None:
    """Raise NewerFormatError for a format beyond FORMAT, ValueError for a missing one."""
    if number > FORMAT:
        raise NewerFormatError(what, number)
    if number == 0:
        raise ValueError(f"a {what} without a format")


def drain_out(drain: Drain, now: float) -> agent_pb2.SetDrainRequest:
    """Convert a drain order; the host counts the remaining time by its own clock."""
    request = agent_pb2.SetDrainRequest(revision=drain.revision, draining=drain.draining)
    if drain.deadline is not None:
        request.deadline_time.FromMilliseconds(to_ms(drain.deadline))
        request.remaining.FromMilliseconds(max(0, to_ms(drain.deadline) - to_ms(now)))
    return request
