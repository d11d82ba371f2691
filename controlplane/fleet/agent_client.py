"""The client of one agent: protobuf ends here.

The only module of the control plane that imports generated code. Every call has a deadline. A
failure with a reason is an answer (AgentRefusedError); one without, such as a passed deadline or a
broken connection, says nothing about what the agent did (AgentSilentError).
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from controlplane.errors import AgentReason, AgentRefusedError, AgentSilentError
from controlplane.fleet.contract import (
    Answer,
    EndReason,
    Heartbeat,
    Host,
    HostReported,
    HostSession,
    Identity,
    NetworkMode,
    Port,
    PortRequest,
    Protocol,
    PullProgress,
    RegistryLogin,
    Resources,
    SessionSpec,
    SessionsReported,
    SnapshotBegin,
    SnapshotEnd,
    State,
    WatchMessage,
)
from controlplane.fleet.session_report import FailedRun, Moment, SessionReport
from tiltyard.agent.v1 import agent_pb2, agent_pb2_grpc

REASON_METADATA = "tiltyard-error-reason"
FORMAT = 1
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
FOLLOW_TIMEOUT = 24 * 3600.0
"""A follower comes back after a day; a session may live longer."""

TRANSFER_TIMEOUT = 600.0
"""For 100 MB of artifact or 64 MiB of log to a slow caller."""

REPORT_TIMEOUT = 15.0
"""An agent may wait 5 s for the log to be in its keeping."""

PULL_TIMEOUT = 1900.0
"""An agent gives a pull up after 1,800 s, and what it says of that shall come first."""

REMOVE_TIMEOUT = 90.0
"""The engine has 60 s for it, and may be asked for another thing first."""

_Stream = TypeVar("_Stream", bound=grpc.aio.RpcContext)
_HUNG_UP = "the control plane has hung up on the agent"
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.enable_retries", 0),
)
_PROTOCOLS = {
    Protocol.TCP: agent_pb2.PROTOCOL_TCP,
    Protocol.UDP: agent_pb2.PROTOCOL_UDP,
}
_PROTOCOL_NAMES = {number: protocol for protocol, number in _PROTOCOLS.items()}
_NETWORK_MODES = {
    NetworkMode.BRIDGE: agent_pb2.NETWORK_MODE_BRIDGE,
    NetworkMode.HOST: agent_pb2.NETWORK_MODE_HOST,
}


class AgentClient:
    """Speaks with one agent over one channel."""

    def __init__(self, address: str) -> None:
        """Name the agent's address, such as `unix:/run/tiltyard/agent.sock`; dials lazily."""
        self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        self._stub = agent_pb2_grpc.AgentServiceStub(self._channel)

    async def close(self) -> None:
        """Close the channel, which ends every call."""
        await self._channel.close()

    async def watch(
        self, incarnation: str, acked_sequence: int
    ) -> AsyncGenerator[WatchMessage, None]:
        """Follow the host; ends only by an error, a cancellation or after a day.

        Raises:
            AgentRefusedError: The agent answered that it cannot.
            AgentSilentError: The agent cannot be reached or the stream broke.
        """
        request = agent_pb2.WatchRequest(incarnation=incarnation, acked_sequence=acked_sequence)
        with _translated(), _ended(self._stub.Watch(request, timeout=FOLLOW_TIMEOUT)) as call:
            async for response in call:
                yield _watch_message(response)
        raise AgentSilentError("the agent ended the stream")

    async def start_session(self, internal_id: str, spec: SessionSpec, timeout: float) -> Answer:
        """Start a session. Idempotent on the internal id. Raises as `watch`."""
        request = agent_pb2.StartSessionRequest(internal_id=internal_id, spec=_spec_out(spec))
        with _translated():
            response = await self._stub.StartSession(request, timeout=timeout)
            return Answer(_session_in(response.session), response.incarnation)

    async def stop_session(self, internal_id: str, timeout: float, *, discard: bool) -> Answer:
        """Stop a session and wait for its end, at most `timeout` seconds. Raises as `watch`.

        `discard` has the host remove all that is left of it: nobody will ask for it again.
        """
        request = agent_pb2.StopSessionRequest(
            internal_id=internal_id, reason=agent_pb2.END_REASON_STOPPED, discard=discard
        )
        with _translated():
            response = await self._stub.StopSession(request, timeout=timeout)
            return Answer(_session_in(response.session), response.incarnation)

    async def stream_logs(self, internal_id: str, *, follow: bool) -> AsyncGenerator[bytes, None]:
        """Read a log from its beginning. Closing cancels the call. Raises as `watch`."""
        request = agent_pb2.StreamLogsRequest(internal_id=internal_id, follow=follow)
        timeout = FOLLOW_TIMEOUT if follow else TRANSFER_TIMEOUT
        with _translated(), _ended(self._stub.StreamLogs(request, timeout=timeout)) as call:
            async for response in call:
                yield response.data

    async def get_report(self, internal_id: str) -> SessionReport:
        """Read how a session ended. Raises as `watch`."""
        request = agent_pb2.GetReportRequest(internal_id=internal_id)
        with _translated():
            response = await self._stub.GetReport(request, timeout=REPORT_TIMEOUT)
            return _report_in(response)

    async def fetch_artifact(self, internal_id: str, path: str) -> AsyncGenerator[bytes, None]:
        """Read a .tar.gz of a file or folder. Closing cancels the call. Raises as `watch`."""
        request = agent_pb2.FetchArtifactRequest(internal_id=internal_id, path=path)
        timeout = TRANSFER_TIMEOUT
        with _translated(), _ended(self._stub.FetchArtifact(request, timeout=timeout)) as call:
            async for response in call:
                yield response.data

    async def pull_image(
        self, image: str, login: RegistryLogin | None = None
    ) -> AsyncGenerator[PullProgress, None]:
        """Have an image pulled, and follow that until it is there. Idempotent. Raises as `watch`.

        Closing cancels the call, not the pull.
        """
        request = agent_pb2.PullImageRequest(image=image, credentials=_credentials_out(login))
        with _translated(), _ended(self._stub.PullImage(request, timeout=PULL_TIMEOUT)) as call:
            async for response in call:
                if response.done:
                    return
                yield PullProgress(
                    response.layers,
                    response.layers_done,
                    response.received_bytes,
                    response.waiting,
                )
        raise AgentSilentError("the agent ended the pull without a result")

    async def remove_image(self, image: str) -> None:
        """Have an image removed that nothing on the host uses. Idempotent. Raises as `watch`."""
        request = agent_pb2.RemoveImageRequest(image=image)
        with _translated():
            await self._stub.RemoveImage(request, timeout=REMOVE_TIMEOUT)


@contextmanager
def _ended(call: _Stream) -> Iterator[_Stream]:
    """Cancel a stream when its reader goes."""
    try:
        yield call
    finally:
        call.cancel()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Nobody cancelled the caller: `close` has ended its call.
        raise AgentSilentError(_HUNG_UP) from None
    except grpc.aio.UsageError as error:
        raise AgentSilentError(_HUNG_UP) from error
    except grpc.aio.AioRpcError as error:
        text = error.details() or error.code().name
        named = dict(error.trailing_metadata() or ()).get(REASON_METADATA)
        name = named.decode() if isinstance(named, bytes) else named
        if isinstance(name, str) and name in AgentReason.__members__:
            raise AgentRefusedError(AgentReason[name], text) from error
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            raise AgentRefusedError(AgentReason.UNIMPLEMENTED, text) from error
        raise AgentSilentError(text) from error
    except (KeyError, ValueError) as error:
        raise AgentSilentError(f"the agent sent what cannot be read: {error}") from error


def _spec_out(spec: SessionSpec) -> agent_pb2.SessionSpec:
    identity = spec.identity
    return agent_pb2.SessionSpec(
        format=FORMAT,
        identity=agent_pb2.Identity(
            account=identity.account,
            session_id=identity.session_id,
            application=identity.application,
            tag=identity.tag,
            location=identity.location,
            labels=dict(identity.labels),
            external_id=identity.external_id,
        ),
        image=spec.image,
        args=spec.args,
        env=dict(spec.env),
        restart=spec.restart,
        ttl=None if spec.ttl is None else Duration(seconds=spec.ttl),
        network_mode=_NETWORK_MODES[spec.network_mode],
        reservation=_resources_out(spec.reservation),
        limits=_resources_out(spec.limits),
        ports=[_port_out(port) for port in spec.ports],
    )


def _credentials_out(login: RegistryLogin | None) -> agent_pb2.RegistryCredentials | None:
    if login is None:
        return None
    return agent_pb2.RegistryCredentials(username=login.username, password=login.password)


def _port_out(port: PortRequest) -> agent_pb2.PortRequest:
    return agent_pb2.PortRequest(
        container_port=port.container,
        protocol=_PROTOCOLS[port.protocol],
        tls=port.tls,
        pinned_host_port=port.pinned,
    )


def _resources_out(resources: Resources) -> agent_pb2.Resources:
    return agent_pb2.Resources(
        nano_cpus=resources.nano_cpus, memory_bytes=resources.memory_bytes, gpus=resources.gpus
    )


def _watch_message(response: agent_pb2.WatchResponse) -> WatchMessage:
    return WatchMessage(response.incarnation, response.sequence, _watch_event(response))


def _watch_event(
    response: agent_pb2.WatchResponse,
) -> SnapshotBegin | SnapshotEnd | SessionsReported | HostReported | Heartbeat:
    kind = response.WhichOneof("event")
    if kind == "snapshot_begin":
        return SnapshotBegin()
    if kind == "snapshot_end":
        return SnapshotEnd(response.snapshot_end.reconciled)
    if kind == "sessions":
        return SessionsReported(_sessions_in(response.sessions.sessions))
    if kind == "host":
        return HostReported(_host_in(response.host))
    return Heartbeat()


def _sessions_in(sessions: Iterable[agent_pb2.Session]) -> tuple[HostSession, ...]:
    return tuple(_session_in(session) for session in sessions)


def _session_in(session: agent_pb2.Session) -> HostSession:
    identity = session.identity
    ended = session.end_reason != agent_pb2.END_REASON_UNSPECIFIED
    return HostSession(
        internal_id=session.internal_id,
        identity=Identity(
            account=identity.account,
            session_id=identity.session_id,
            application=identity.application,
            tag=identity.tag,
            location=identity.location,
            labels=dict(identity.labels),
            external_id=identity.external_id,
        ),
        image=session.image,
        state=_state_in(session.state),
        ports=tuple(
            Port(p.container_port, _PROTOCOL_NAMES[p.protocol], p.host_port, p.tls)
            for p in session.ports
        ),
        reservation=_resources_in(session.reservation),
        injected_env=dict(session.injected_env),
        create_ms=session.create_time.ToMilliseconds(),
        expire_ms=_milliseconds(session.expire_time, session.HasField("expire_time")),
        end_ms=_milliseconds(session.end_time, session.HasField("end_time")),
        exit_code=session.exit_code if session.HasField("exit_code") else None,
        end_reason=EndReason[_end_reason_name(session.end_reason)] if ended else None,
        detail=session.detail,
        sequence=session.sequence,
        host=session.host,
    )


def _report_in(response: agent_pb2.GetReportResponse) -> SessionReport:
    report = response.report
    known = report.HasField
    return SessionReport(
        state=_state_in(report.state),
        end_reason=EndReason[_end_reason_name(report.end_reason)],
        detail=report.detail,
        create_ms=report.create_time.ToMilliseconds(),
        end_ms=report.end_time.ToMilliseconds(),
        exit_code=report.exit_code if known("exit_code") else None,
        signal=report.signal if known("signal") else None,
        oom_killed=report.oom_killed,
        restart_count=report.restart_count,
        failed_runs=tuple(map(_failed_run_in, report.failed_runs)),
        timeline=tuple(
            Moment(_state_in(moment.state), moment.time.ToMilliseconds())
            for moment in report.timeline
        ),
        cpu_seconds=_seconds(report.cpu_time) if known("cpu_time") else None,
        peak_memory_bytes=report.peak_memory_bytes if known("peak_memory_bytes") else None,
        log=response.log if response.HasField("log") else None,
        log_truncated=response.log_truncated,
    )


def _failed_run_in(run: agent_pb2.FailedRun) -> FailedRun:
    return FailedRun(
        start_ms=_milliseconds(run.start_time, run.HasField("start_time")),
        end_ms=run.end_time.ToMilliseconds(),
        exit_code=run.exit_code if run.HasField("exit_code") else None,
        oom_killed=run.oom_killed,
        delay=_seconds(run.restart_delay),
    )


def _state_in(number: agent_pb2.State.ValueType) -> State:
    return State[agent_pb2.State.Name(number).removeprefix("STATE_")]


def _seconds(span: Duration) -> float:
    return span.ToNanoseconds() / 10**9


def _end_reason_name(number: agent_pb2.EndReason.ValueType) -> str:
    return agent_pb2.EndReason.Name(number).removeprefix("END_REASON_")


def _milliseconds(time: Timestamp, present: bool) -> int | None:
    return time.ToMilliseconds() if present else None


def _resources_in(resources: agent_pb2.Resources) -> Resources:
    return Resources(resources.nano_cpus, resources.memory_bytes, resources.gpus)


def _host_in(host: agent_pb2.Host) -> Host:
    return Host(
        agent_id=host.agent_id,
        version=host.version,
        public_address=host.public_address,
        latency_addresses=tuple(host.latency_addresses),
        capacity=_resources_in(host.capacity),
        reserved=_resources_in(host.reserved),
        free_sessions=host.free_sessions,
        port_range_first=host.port_range_first,
        port_range_last=host.port_range_last,
        free_tcp_ports=host.free_tcp_ports,
        free_udp_ports=host.free_udp_ports,
        images=frozenset(host.images),
        tls=host.tls,
        draining=host.draining,
        engine_available=host.engine_available,
        start_slots=host.start_slots,
    )
