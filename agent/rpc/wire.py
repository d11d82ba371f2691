"""Converts and validates messages of agent.proto."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from operator import attrgetter

from google.protobuf.timestamp_pb2 import Timestamp

from agent.domain.errors import InvalidArgumentError
from agent.domain.kept.pools import WarmPool
from agent.domain.references import checked_reference
from agent.domain.sessions.history import signal_of
from agent.domain.sessions.session import LONGEST_TTL_SECONDS, Port, Session
from agent.domain.sessions.stopping import asks_to_end
from agent.logs.report import Tail
from agent.sessions.claims import checked_request
from agent.sessions.life import ClaimRequest
from agent.state.drain import DrainOrder
from tiltyard.agent.bounds import MAX_DETAIL, MAX_SENTENCE
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.wire import (
    CAPABILITIES,
    END_REASONS,
    LIMITS,
    NETWORK_MODES,
    PROTOCOLS,
    STATES,
    duration_to_proto,
    identity_from_proto,
    identity_to_proto,
    resources_to_proto,
)
from tiltyard.contract import (
    FORMAT,
    MIN_PIDS,
    Capability,
    EndReason,
    Identity,
    PortRequest,
    PreparedShape,
    Resources,
    SessionSpec,
)
from tiltyard.ends import FailedRun, PortBindings
from tiltyard.images import PullProgress

LONGEST_ID = 256
LONGEST_DRAIN_SECONDS = 100 * LONGEST_TTL_SECONDS
LAST_TIMESTAMP = 253_402_300_799  # The end of the year 9999, the maximum of a Timestamp
LARGEST_PORT = 65535
IMAGES_IN_MESSAGE = 2000  # At most 330 bytes each, below 1 MiB; the limit of a message is 4 MiB
MOST_PORTS = 32  # Per session: the engine publishes ports one by one, under a lock

_PROTOCOLS = {number: protocol for protocol, number in PROTOCOLS.items()}
_MODES = {number: mode for mode, number in NETWORK_MODES.items()}
_CAPABILITIES = {number: each for each, number in CAPABILITIES.items()}


_CLAIMED = {"spec", "standby", "claim", "deadline", "injected_env", "sequence"}
_not_claimed = attrgetter(*(each.name for each in fields(Session) if each.name not in _CLAIMED))
"""Reads the values of a session that its claim does not change."""


def spec_from_proto(spec: pb.SessionSpec) -> SessionSpec:
    """Read a spec; raises InvalidArgumentError with the invalid field."""
    return _spec(spec, _identity(spec.identity, "spec.identity"))


def shapes_from_proto(request: pb.SetShapesRequest) -> tuple[SessionSpec, ...]:
    """Read shapes; raises InvalidArgumentError if a spec is invalid or no shape."""
    return tuple(map(_shape, request.shapes))


def _shape(spec: pb.SessionSpec) -> SessionSpec:
    _refuse_nul("spec.identity", [spec.identity.account])
    if not spec.identity.account:
        raise InvalidArgumentError("spec.identity", "an account is required")
    shape = _spec(spec, identity_from_proto(spec.identity))
    if shape != shape.shape:
        raise InvalidArgumentError("spec", "it is no shape")
    return shape


def _spec(spec: pb.SessionSpec, identity: Identity) -> SessionSpec:
    if spec.format != FORMAT:
        raise InvalidArgumentError("spec.format", f"this agent knows {FORMAT}")
    if spec.network_mode not in _MODES:
        raise InvalidArgumentError("spec.network_mode", "it is not set")
    reservation = _resources(spec.reservation, "spec.reservation")
    limits = _resources(spec.limits, "spec.limits")
    if limits.nano_cpus < reservation.nano_cpus or limits.memory_bytes < reservation.memory_bytes:
        raise InvalidArgumentError("spec.limits", "they are below the reservation")
    _refuse_nul("spec.args", spec.args)
    _refuse_nul("spec.env", [*spec.env.keys(), *spec.env.values()])
    if any(not name or "=" in name for name in spec.env):
        raise InvalidArgumentError("spec.env", "a name is empty or contains '='")
    if spec.disk_bytes < 0:
        raise InvalidArgumentError("spec.disk_bytes", "it is negative")
    if spec.pids and spec.pids < MIN_PIDS:
        raise InvalidArgumentError("spec.pids", f"it is below {MIN_PIDS}")
    if spec.shm_bytes < 0:
        raise InvalidArgumentError("spec.shm_bytes", "it is negative")
    if spec.stop_signal and not asks_to_end(spec.stop_signal):
        text = "it is not the name of a signal that a program can handle"
        raise InvalidArgumentError("spec.stop_signal", text)
    return SessionSpec(
        identity=identity,
        image=checked_reference(spec.image),
        network_mode=_MODES[spec.network_mode],
        reservation=reservation,
        limits=limits,
        args=tuple(spec.args),
        env=dict(spec.env),
        restart=spec.restart,
        ttl=_ttl(spec, "spec.ttl"),
        ports=_port_requests(spec.ports),
        disk_bytes=spec.disk_bytes,
        pids=spec.pids,
        shm_bytes=spec.shm_bytes,
        stop_signal=spec.stop_signal,
        stop_grace=_stop_grace(spec),
        capabilities=_capabilities(spec),
        image_init=spec.image_init,
        contiguous=spec.contiguous,
    )


def _stop_grace(spec: pb.SessionSpec) -> float:
    seconds = spec.stop_grace.seconds + spec.stop_grace.nanos / 1e9
    if seconds < 0:
        raise InvalidArgumentError("spec.stop_grace", "it is negative")
    return seconds


def _capabilities(spec: pb.SessionSpec) -> tuple[Capability, ...]:
    if any(number not in _CAPABILITIES for number in spec.capabilities):
        text = "no container of this agent can have one of them"
        raise InvalidArgumentError("spec.capabilities", text)
    return tuple(sorted({_CAPABILITIES[number] for number in spec.capabilities}))


def pool_from_proto(request: pb.SetWarmPoolRequest) -> WarmPool:
    """Read a warm pool; the spec is ignored if the size is 0."""
    if not request.size:
        return WarmPool(request.pool_id, request.revision, 0)
    spec = pb.SessionSpec()
    spec.CopyFrom(request.spec)
    spec.identity.session_id = request.pool_id  # each standby gets its own
    spec.ClearField("ttl")
    return WarmPool(
        request.pool_id,
        request.revision,
        request.size,
        spec_from_proto(spec),
        request.claim_signal,
    )


def claim_from_proto(request: pb.Claim) -> ClaimRequest:
    """Read a claim; raises InvalidArgumentError with the invalid field."""
    return ClaimRequest(
        identity=_identity(request.identity, "identity"),
        ttl=_ttl(request, "ttl"),
        request=checked_request(request.request_json),
        again=request.again,
    )


def session_to_proto(session: Session) -> pb.Session:
    """Convert a session."""
    message = pb.Session(
        format=FORMAT,
        internal_id=session.internal_id,
        identity=identity_to_proto(session.spec.identity),
        image=session.spec.image,
        state=STATES[session.state],
        ports=[_port_to_proto(port) for port in session.ports],
        reservation=resources_to_proto(session.spec.reservation),
        injected_env=session.injected_env,
        exit_code=session.exit_code,
        restart_count=session.restart_count,
        detail=session.detail[:MAX_DETAIL],
        sequence=session.sequence,
        host=session.host,
        pid=session.process.pid if session.process else 0,
        log_sealed=session.log_sealed,
        create_time=timestamp_to_proto(session.create_time),
        start_time=timestamp_to_proto(session.start_time),
        expire_time=timestamp_to_proto(session.deadline.expire_time if session.deadline else None),
        end_time=timestamp_to_proto(session.end_time),
        ready_time=timestamp_to_proto(session.ready_time),
        failure_time=timestamp_to_proto(session.failure_time),
        state_time=timestamp_to_proto(session.since),
        forced=session.stop is not None and session.stop.forced,
    )
    if session.standby is not None:
        message.warm_pool = session.standby.pool if session.is_standby else ""
        message.warm_pool_revision = session.standby.revision
        message.in_doubt = session.is_standby and session.standby.in_doubt
    if session.end_reason is not None:
        message.end_reason = END_REASONS[session.end_reason]
    return message


def claimed_to_proto(standby: Session, session: Session) -> pb.Claimed | None:
    """Convert what its claim has changed of a standby; None if anything else has changed."""
    if session.claim is None or _not_claimed(session) != _not_claimed(standby):
        return None
    env = session.injected_env
    before = standby.injected_env
    if env.keys() != before.keys():
        return None
    changed = {name: value for name, value in env.items() if before[name] != value}
    return pb.Claimed(sequence=session.sequence, injected_env=changed)


def report_to_proto(session: Session, tail: Tail | None) -> pb.GetReportResponse:
    """Convert the report of an ended session and the tail of its log, if any."""
    usage = session.earlier_usage + session.run_usage
    message = pb.Report(
        format=FORMAT,
        internal_id=session.internal_id,
        state=STATES[session.state],
        end_reason=END_REASONS[session.end_reason or EndReason.ENGINE_ERROR],
        detail=session.detail[:MAX_DETAIL],
        create_time=timestamp_to_proto(session.create_time),
        end_time=timestamp_to_proto(session.end_time),
        exit_code=session.exit_code,
        signal=signal_of(session.exit_code),
        oom_killed=session.oom_killed,
        limits_met=[LIMITS[limit] for limit in session.limits_met],
        restart_count=session.restart_count,
        failed_runs=[_failed_run_to_proto(run) for run in session.failed_runs],
        timeline=[
            pb.Moment(state=STATES[moment.state], time=timestamp_to_proto(moment.time))
            for moment in session.timeline
        ],
        cpu_time=duration_to_proto(usage.cpu_seconds),
        peak_memory_bytes=usage.peak_memory_bytes,
        prepared=bool(session.prepared),
        stop=None if session.stop is None else pb.StopResult(**asdict(session.stop)),
    )
    if tail is None:
        return pb.GetReportResponse(report=message)
    return pb.GetReportResponse(
        report=message, log=tail.data, log_truncated=tail.cut, log_damaged=session.log_damaged
    )


def bindings_to_proto(bindings: PortBindings) -> pb.GetBindingsResponse:
    """Convert the bound and unbound ports of a session."""
    return pb.GetBindingsResponse(
        unbound=[
            pb.UnboundPort(
                protocol=PROTOCOLS[port.protocol],
                container_port=port.container,
                own_port=port.own,
                loopback=port.loopback,
            )
            for port in bindings.unbound
        ],
        others=[
            pb.BoundPort(protocol=PROTOCOLS[port.protocol], port=port.port)
            for port in bindings.others
        ],
    )


def progress_to_proto(progress: PullProgress) -> pb.PullImageResponse:
    """Convert the progress of a pull."""
    return pb.PullImageResponse(**asdict(progress))


def images_to_proto(
    here: Mapping[str, int], pulls: Mapping[str, PullProgress]
) -> list[pb.ListImagesResponse]:
    """Convert the images and pulls of a host, in several messages."""
    found = [
        pb.ListImagesResponse(
            images=[pb.Image(image=image, size_bytes=here[image]) for image in part]
        )
        for part in _parts(here)
    ]
    found[0].pulls.extend(
        pb.Pull(image=image, progress=progress_to_proto(progress))
        for image, progress in sorted(pulls.items())
    )
    return found


def image_batches(here: Mapping[str, int]) -> list[pb.ImageBatch]:
    """Split the images of a host, with their sizes, into messages for watchers."""
    parts = _parts(here)
    return [
        pb.ImageBatch(
            images=part,
            sizes=[here[image] for image in part],
            first=number == 1,
            last=number == len(parts),
        )
        for number, part in enumerate(parts, 1)
    ]


def prepared_to_proto(shapes: Iterable[PreparedShape]) -> list[pb.PreparedShape]:
    """Convert the state of the prepared containers of each shape."""
    return [
        pb.PreparedShape(
            key=shape.key, image=shape.image, kept=shape.kept, error=shape.error[:MAX_SENTENCE]
        )
        for shape in shapes
    ]


def drain_order_from_proto(request: pb.SetDrainRequest) -> DrainOrder:
    """Read a drain order; raises InvalidArgumentError with the invalid field."""
    if not request.HasField("remaining"):
        return DrainOrder(request.revision, request.draining)
    remaining = request.remaining.seconds + request.remaining.nanos / 1e9
    if not 0 <= remaining <= LONGEST_DRAIN_SECONDS:
        raise InvalidArgumentError("remaining", "it is negative, or longer than 100 years")
    ordered_time = None
    if request.HasField("deadline_time"):
        ordered_time = request.deadline_time.seconds + request.deadline_time.nanos / 1e9
        if not 0 <= ordered_time <= LAST_TIMESTAMP:
            raise InvalidArgumentError("deadline_time", "it is not a time from 1970 to 9999")
    return DrainOrder(request.revision, request.draining, remaining, ordered_time)


def timestamp_to_proto(seconds: float | None) -> Timestamp | None:
    """Convert Unix time."""
    if seconds is None:
        return None
    time = Timestamp()
    time.FromNanoseconds(round(seconds * 1e9))
    return time


def page_to_token(last: Session) -> str:
    """Return the token of the page after this session."""
    return f"{last.create_time.hex()}~{last.internal_id}"


def page_from_token(token: str) -> tuple[float, str]:
    """Return creation time and id after which a page begins; raises InvalidArgumentError."""
    if not token:
        return (-math.inf, "")
    time, _, internal_id = token.partition("~")
    try:
        return (float.fromhex(time), internal_id)
    except (ValueError, OverflowError):
        raise InvalidArgumentError("page_token", "it is not one of this agent") from None


def _failed_run_to_proto(run: FailedRun) -> pb.FailedRun:
    return pb.FailedRun(
        start_time=timestamp_to_proto(run.start_time),
        end_time=timestamp_to_proto(run.end_time),
        exit_code=run.exit_code,
        oom_killed=run.oom_killed,
        limits_met=[LIMITS[limit] for limit in run.limits_met],
        restart_delay=duration_to_proto(run.delay),
    )


def _identity(identity: pb.Identity, field: str) -> Identity:
    if not 1 <= len(identity.session_id) <= LONGEST_ID:
        raise InvalidArgumentError(f"{field}.session_id", f"its length is not 1 to {LONGEST_ID}")
    _refuse_nul(field, [identity.session_id, identity.account, identity.application])
    if not identity.account or not identity.application:
        raise InvalidArgumentError(field, "account and application are required")
    return identity_from_proto(identity)


def _resources(resources: pb.Resources, field: str) -> Resources:
    if resources.nano_cpus <= 0 or resources.memory_bytes <= 0 or resources.gpus < 0:
        raise InvalidArgumentError(field, "cores and memory must be positive")
    return Resources(resources.nano_cpus, resources.memory_bytes, resources.gpus)


def _ttl(message: pb.SessionSpec | pb.Claim, field: str) -> float | None:
    if not message.HasField("ttl"):
        return None
    seconds = message.ttl.seconds + message.ttl.nanos / 1e9
    if not 0 < seconds <= LONGEST_TTL_SECONDS:
        raise InvalidArgumentError(field, "it is not positive, or longer than 8760 hours")
    return seconds


def _port_requests(ports: Sequence[pb.PortRequest]) -> tuple[PortRequest, ...]:
    if len(ports) > MOST_PORTS:
        raise InvalidArgumentError("spec.ports", f"there are more than {MOST_PORTS}")
    requests: list[PortRequest] = []
    for index, port in enumerate(ports):
        field = f"spec.ports[{index}]"
        if port.protocol not in _PROTOCOLS:
            raise InvalidArgumentError(field, "its protocol is not set")
        if not 1 <= port.container_port <= LARGEST_PORT or port.pinned_host_port > LARGEST_PORT:
            raise InvalidArgumentError(field, f"a port is not in 1 to {LARGEST_PORT}")
        if port.tls and port.protocol != pb.PROTOCOL_TCP:
            raise InvalidArgumentError(field, "TLS needs TCP")
        if port.tls and port.same:
            raise InvalidArgumentError(field, "the agent binds the host port of TLS")
        request = PortRequest(
            container=port.container_port,
            protocol=_PROTOCOLS[port.protocol],
            tls=port.tls,
            pinned=port.pinned_host_port,
            same=port.same,
        )
        requests.append(request)
    if len({(request.container, request.protocol) for request in requests}) < len(requests):
        raise InvalidArgumentError("spec.ports", "a port is listed twice")
    return tuple(requests)


def _port_to_proto(port: Port) -> pb.Port:
    return pb.Port(
        container_port=port.container,
        protocol=PROTOCOLS[port.protocol],
        host_port=port.host,
        tls=port.tls,
    )


def _refuse_nul(field: str, texts: Iterable[str]) -> None:
    if any("\0" in text for text in texts):
        raise InvalidArgumentError(field, "it contains a NUL character")


def _parts(images: Collection[str]) -> list[list[str]]:
    """Split sorted images into at least one part of at most IMAGES_IN_MESSAGE."""
    names = sorted(images)
    step = IMAGES_IN_MESSAGE
    return [names[at : at + step] for at in range(0, len(names), step)] or [[]]
