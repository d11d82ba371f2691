"""The client of one agent.

A failure with a reason is an answer (AgentRefusedError). Without one, such as after a deadline or
a broken connection, it is unknown what the agent did (AgentUnavailableError).
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from controlplane.admission.request_slots import release_request_slot
from controlplane.agent_rpc.claim_stream import ClaimStream
from controlplane.agent_rpc.reports import NOTHING_KNOWN, KnownReports, watch_messages_in
from controlplane.agent_rpc.session_details import bindings_in, report_in
from controlplane.agent_rpc.wire import (
    NewerFormatError,
    claim_out,
    claimed_in,
    credentials_out,
    drain_out,
    session_in,
    shapes_out,
    spec_out,
    standby_order_out,
)
from controlplane.domain.errors import (
    AgentExcessError,
    AgentNewerError,
    AgentRefusedError,
    AgentUnavailableError,
)
from controlplane.domain.hosts.contract import (
    Answer,
    Claim,
    Drain,
    LogPart,
    RegistryLogin,
    StandbyOrder,
    WatchMessage,
)
from controlplane.domain.hosts.reported_sessions import LastReport
from controlplane.domain.hosts.session_report import SessionReport
from controlplane.metrics.agents import AgentCalls
from tiltyard.agent.checked import OutOfBoundsError, check
from tiltyard.agent.v1 import agent_pb2, agent_pb2_grpc
from tiltyard.contract import (
    ERROR_REASON_KEY,
    REQUEST_KEY,
    ErrorReason,
    Identity,
    Resources,
    SessionSpec,
)
from tiltyard.ends import PortBindings
from tiltyard.images import PullProgress
from tiltyard.runtime.logging.events import bound
from tiltyard.runtime.tasks import TaskOwner

FOLLOW_TIMEOUT = 24 * 3600.0  # A follower reconnects after a day; a session may live longer
TRANSFER_TIMEOUT = 600.0  # For 100 MB of artifact or 64 MiB of log to a slow caller
REPORT_TIMEOUT = 15.0  # An agent may wait 5 s until it has stored the whole log

PULL_TIMEOUT = 1900.0
"""Longer than the agent's own limit of 1,800 s, so that its error arrives first."""

REMOVE_TIMEOUT = 90.0  # The engine has 60 s for it, and another call may come first

ORDER_TIMEOUT = 15.0
"""An agent makes a key, or writes to its disk: a file for each of a thousand drained sessions."""

MAX_MESSAGE_BYTES = 4 * 1024 * 1024

OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A dead connection is detected within 8 s.
    ("grpc.keepalive_time_ms", 4_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.http2.ping_timeout_ms", 4_000),
    ("grpc.http2.max_pings_without_data", 0),
    # By default a stream runs thousands of messages ahead of a reader that does not read. This is
    # 2.5 MB/s at a round trip of 100 ms.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 256 * 1024),
    # The return of a host is detected within a second; an attempt to connect has 2 s.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # else a new channel may get a closed one's connection
)

MakeTicket = Callable[[str, Identity, Resources], str]
"""Makes the ticket of a session from its internal id, identity and reservation."""

_T = TypeVar("_T")
_DISCONNECTED = "the control plane has disconnected from the agent"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The mutual TLS credentials for an agent, as PEM texts; `host` is its DNS name."""

    authority: bytes = field(repr=False)
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)
    host: str


@dataclass(frozen=True, slots=True)
class SigningRequest:
    """A signing request as PEM text, and whether its agent accepts new trust anchors."""

    request: bytes
    takes_authorities: bool


class AgentClient:
    """Calls one agent over one channel."""

    def __init__(
        self,
        address: str,
        credentials: Credentials | None = None,
        calls: AgentCalls | None = None,
        make_ticket: MakeTicket | None = None,
    ) -> None:
        """Dial an address lazily: a `unix:` path, or by mutual TLS with `credentials`."""
        self._address = address
        self._calls = calls or AgentCalls()
        self._make_ticket = make_ticket
        self._under_way: Counter[grpc.aio.Channel] = Counter()
        self._left: set[grpc.aio.Channel] = set()
        """Former channels; each is closed after its last call."""
        self._closing = TaskOwner[None]()
        self._streams = TaskOwner[None]()
        self._dial(credentials)

    @property
    def is_calling(self) -> bool:
        """Return whether calls are under way."""
        return bool(self._under_way)

    def redial(self, credentials: Credentials | None = None) -> None:
        """Use a new connection for new calls, by default with the same credentials."""
        self._left.add(self._channel)
        self._close_if_unused(self._channel)
        self._dial(credentials or self._credentials)

    def hang_up(self, credentials: Credentials | None) -> None:
        """End all calls, and use other credentials for new ones."""
        for channel in self._take_channels():
            self._start_closing(channel)
        self._dial(credentials)

    async def close(self) -> None:
        """Close all connections, which ends every call."""
        for channel in self._take_channels():
            await channel.close()
        await self._closing.wait()
        await self._streams.close()

    def watch(
        self, incarnation: str, acked_sequence: int, known: KnownReports = NOTHING_KNOWN
    ) -> AsyncGenerator[WatchMessage, None]:
        """Follow the host until an error, a cancellation or FOLLOW_TIMEOUT.

        A report that is `known` is not parsed again.

        Raises:
            AgentRefusedError: The agent answered with an error.
            AgentUnavailableError: The agent cannot be reached or the stream broke.
        """
        request = agent_pb2.WatchRequest(incarnation=incarnation, acked_sequence=acked_sequence)
        ended = "the agent ended the stream"
        responses = self._stream("Watch", request, FOLLOW_TIMEOUT, _whole, ended=ended)
        return _watch_messages(responses, known)

    async def start_session(self, internal_id: str, spec: SessionSpec, timeout: float) -> Answer:
        """Start a session. Idempotent on the internal id. Raises as `watch`."""
        identity = self._with_ticket(internal_id, spec.identity, spec.reservation)
        spec = replace(spec, identity=identity)
        request = agent_pb2.StartSessionRequest(internal_id=internal_id, spec=spec_out(spec))
        return await self._call("StartSession", request, timeout, partial(_answered, internal_id))

    async def claim_session(
        self, claim: Claim, timeout: float, known: LastReport | None = None
    ) -> Answer:
        """Turn a standby into a session. Idempotent on its internal id. Raises as `watch`.

        `known`: the newest report of the standby, with which the agent need not repeat it.
        """
        identity = self._with_ticket(claim.internal_id, claim.identity, claim.reservation)
        request = claim_out(claim, identity, known)
        with self._calling("ClaimSession"):
            result, incarnation = await self._claims.claim(request, timeout)
            if not result.HasField("claimed"):
                return _answer(claim.internal_id, result.session, incarnation)
            if known is None or known.incarnation != incarnation:
                raise ValueError("the changes of a standby that is not known")
            size = request.identity.ByteSize()
            session = claimed_in(result.claimed, known.session, identity, size)
            return Answer(session, incarnation)

    async def stop_session(self, internal_id: str, timeout: float, *, discard: bool) -> Answer:
        """Stop a session and wait for its end, at most `timeout` seconds. Raises as `watch`.

        `discard`: the host then removes its container, log and record.
        """
        request = agent_pb2.StopSessionRequest(
            internal_id=internal_id, reason=agent_pb2.END_REASON_STOPPED, discard=discard
        )
        return await self._call("StopSession", request, timeout, partial(_answered, internal_id))

    def stream_logs(self, internal_id: str, *, follow: bool) -> AsyncGenerator[bytes, None]:
        """Read a log from its beginning. Closing cancels the call. Raises as `watch`."""
        request = agent_pb2.StreamLogsRequest(internal_id=internal_id, follow=follow)
        timeout = FOLLOW_TIMEOUT if follow else TRANSFER_TIMEOUT
        return self._stream("StreamLogs", request, timeout, _data)

    def read_log(
        self, internal_id: str, *, offset: int, follow: bool
    ) -> AsyncGenerator[LogPart, None]:
        """Read a log from an offset. Closing cancels the call. Raises as `watch`."""
        request = agent_pb2.StreamLogsRequest(
            internal_id=internal_id, follow=follow, offset=offset
        )
        timeout = FOLLOW_TIMEOUT if follow else TRANSFER_TIMEOUT
        return self._stream("StreamLogs", request, timeout, _log_part)

    async def get_report(self, internal_id: str) -> SessionReport:
        """Read how a session ended. Raises as `watch`."""
        request = agent_pb2.GetReportRequest(internal_id=internal_id)
        return await self._call("GetReport", request, REPORT_TIMEOUT, report_in)

    async def get_bindings(self, internal_id: str, timeout: float) -> PortBindings:
        """Read which ports a session has not bound, and others that it has. Raises as `watch`."""
        request = agent_pb2.GetBindingsRequest(internal_id=internal_id)
        return await self._call("GetBindings", request, timeout, bindings_in)

    def fetch_artifact(self, internal_id: str, path: str) -> AsyncGenerator[bytes, None]:
        """Read a .tar.gz of a file or folder. Closing cancels the call. Raises as `watch`."""
        request = agent_pb2.FetchArtifactRequest(internal_id=internal_id, path=path)
        return self._stream("FetchArtifact", request, TRANSFER_TIMEOUT, _data)

    def pull_image(
        self,
        image: str,
        login: RegistryLogin | None = None,
        account: str = "",
        *,
        expected_bytes: int = 0,
    ) -> AsyncGenerator[PullProgress, None]:
        """Pull an image for an account and follow the progress. Idempotent. Raises as `watch`.

        `expected_bytes`: which it may take on the host, 0 if unknown. Closing cancels the call,
        not the pull.
        """
        request = agent_pb2.PullImageRequest(
            image=image,
            credentials=credentials_out(login),
            account=account,
            expected_bytes=expected_bytes,
        )
        ended = "the agent ended the pull without a result"
        return self._stream("PullImage", request, PULL_TIMEOUT, _progress, ended=ended)

    async def set_drain(self, drain: Drain, now: float) -> None:
        """Start or end draining the host. Idempotent. Raises as `watch`."""
        await self._call("SetDrain", drain_out(drain, now), ORDER_TIMEOUT, _done)

    async def set_warm_pool(self, order: StandbyOrder) -> None:
        """Set the number and spec of a pool's standbys. Idempotent. Raises as `watch`."""
        await self._call("SetWarmPool", standby_order_out(order), ORDER_TIMEOUT, _done)

    async def set_shapes(self, shapes: Sequence[SessionSpec]) -> None:
        """Order a prepared container of each shape. Idempotent. Raises as `watch`."""
        await self._call("SetShapes", shapes_out(shapes), ORDER_TIMEOUT, _done)

    async def ask_for_request(self) -> SigningRequest:
        """Make the agent create a key and a signing request. Raises as `watch`."""
        request = agent_pb2.RenewCertificateRequest()
        return await self._call("RenewCertificate", request, ORDER_TIMEOUT, _signing_request)

    async def install(self, certificate: bytes = b"", authorities: bytes = b"") -> None:
        """Install a certificate and trust anchors on the agent. Idempotent. Raises as `watch`.

        The first of `authorities` has signed the certificate; an empty argument changes nothing.
        """
        request = agent_pb2.RenewCertificateRequest(
            certificate=certificate, authorities=authorities
        )
        answer = await self._call("RenewCertificate", request, ORDER_TIMEOUT, _signing_request)
        if authorities and not answer.takes_authorities:
            raise AgentRefusedError(ErrorReason.UNIMPLEMENTED, "it cannot rotate its authority")

    async def remove_image(self, image: str) -> None:
        """Remove an image that nothing on the host uses. Idempotent. Raises as `watch`."""
        request = agent_pb2.RemoveImageRequest(image=image)
        await self._call("RemoveImage", request, REMOVE_TIMEOUT, _done)

    async def _call(
        self, method: str, request: Message, timeout: float, read: Callable[[Any], _T]
    ) -> _T:
        with self._calling(method):
            call = getattr(self._stub, method)
            response = await call(request, timeout=timeout, metadata=_metadata())
            check(response)
            return read(response)

    async def _stream(
        self,
        method: str,
        request: Message,
        timeout: float,
        read: Callable[[Any], _T | None],
        *,
        ended: str = "",
    ) -> AsyncGenerator[_T, None]:
        """Read until `read` returns None. `ended`: error text for an earlier end of the stream."""
        with self._calling(method, is_stream=True):
            call = getattr(self._stub, method)(request, timeout=timeout, metadata=_metadata())
            try:
                async for response in call:
                    check(response)
                    item = read(response)
                    if item is None:
                        return
                    yield item
            finally:
                call.cancel()
        if ended:
            raise AgentUnavailableError(ended)

    @contextmanager
    def _calling(self, method: str, *, is_stream: bool = False) -> Iterator[None]:
        release_request_slot()
        channel = self._channel
        self._under_way[channel] += 1
        try:
            with self._calls.counted(method, is_stream=is_stream), _translated():
                yield
        finally:
            self._under_way[channel] -= 1
            if not self._under_way[channel]:
                del self._under_way[channel]
            self._close_if_unused(channel)

    def _take_channels(self) -> list[grpc.aio.Channel]:
        channels = [self._channel, *self._left]
        self._left.clear()
        return channels

    def _close_if_unused(self, channel: grpc.aio.Channel) -> None:
        if channel not in self._left or self._under_way[channel]:
            return
        self._left.remove(channel)
        self._start_closing(channel)

    def _start_closing(self, channel: grpc.aio.Channel) -> None:
        name = f"end of the last channel to {self._address}"
        self._closing.start(channel.close(), name)

    def _with_ticket(
        self, internal_id: str, identity: Identity, reservation: Resources
    ) -> Identity:
        if self._make_ticket is None:
            return identity
        return replace(identity, ticket=self._make_ticket(internal_id, identity, reservation))

    def _dial(self, credentials: Credentials | None) -> None:
        self._credentials = credentials
        self._channel = _open_channel(self._address, credentials)
        self._stub = agent_pb2_grpc.AgentServiceStub(self._channel)
        self._claims = ClaimStream(self._stub, self._streams)


def _metadata() -> tuple[tuple[str, str], ...]:
    """Return the id of the current request as metadata, for the agent's log."""
    request = bound("request")
    return ((REQUEST_KEY, request),) if request else ()


def _answer(internal_id: str, session: agent_pb2.Session, incarnation: str) -> Answer:
    if session.internal_id != internal_id:
        raise ValueError("another session than it was asked for")
    return Answer(session_in(session), incarnation)


def _answered(
    internal_id: str, response: agent_pb2.StartSessionResponse | agent_pb2.StopSessionResponse
) -> Answer:
    return _answer(internal_id, response.session, response.incarnation)


def _signing_request(response: agent_pb2.RenewCertificateResponse) -> SigningRequest:
    return SigningRequest(response.signing_request, response.takes_authorities)


def _done(_: Message) -> None:
    """Ignore an empty response."""


def _whole(response: agent_pb2.WatchResponse) -> agent_pb2.WatchResponse:
    return response


async def _watch_messages(
    responses: AsyncGenerator[agent_pb2.WatchResponse, None], known: KnownReports
) -> AsyncGenerator[WatchMessage, None]:
    """Read messages; between two parts of a large one other tasks run."""
    reached = 0
    async with aclosing(responses):
        async for response in responses:
            with _translated():
                messages = watch_messages_in(response, reached, known)
                for number, message in enumerate(messages):
                    if number:
                        await asyncio.sleep(0)
                    yield message
            reached = response.sequence


def _data(response: agent_pb2.StreamLogsResponse | agent_pb2.FetchArtifactResponse) -> bytes:
    return response.data


def _log_part(response: agent_pb2.StreamLogsResponse) -> LogPart:
    return LogPart(response.data, response.offset if response.HasField("offset") else None)


def _progress(response: agent_pb2.PullImageResponse) -> PullProgress | None:
    if response.done:
        return None
    return PullProgress(
        layers=response.layers,
        layers_done=response.layers_done,
        received_bytes=response.received_bytes,
        waiting=response.waiting,
        downloading=response.downloading,
    )


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # The caller was not cancelled: `close` has ended its call.
        raise AgentUnavailableError(_DISCONNECTED) from None
    except grpc.aio.UsageError as error:
        raise AgentUnavailableError(_DISCONNECTED) from error
    except grpc.aio.AioRpcError as error:
        text = error.details() or error.code().name
        named = dict(error.trailing_metadata() or ()).get(ERROR_REASON_KEY)
        name = named.decode() if isinstance(named, bytes) else named
        if isinstance(name, str) and name in ErrorReason.__members__:
            raise AgentRefusedError(ErrorReason[name], text) from error
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            raise AgentRefusedError(ErrorReason.UNIMPLEMENTED, text) from error
        raise AgentUnavailableError(text) from error
    except NewerFormatError as error:
        raise AgentNewerError(str(error)) from error
    except OutOfBoundsError as error:
        raise AgentExcessError(f"cannot use what the agent has sent: {error}") from error
    except (KeyError, ValueError) as error:
        raise AgentUnavailableError(f"cannot read the response of the agent: {error}") from error


def _open_channel(address: str, credentials: Credentials | None) -> grpc.aio.Channel:
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=OPTIONS)
    shown = grpc.ssl_channel_credentials(
        credentials.authority, credentials.key, credentials.certificate
    )
    # The certificate is for this name, not for the address.
    options = (*OPTIONS, ("grpc.ssl_target_name_override", credentials.host))
    # The explicit scheme keeps an address such as `unix:7444` from being read as one.
    return grpc.aio.secure_channel(f"dns:///{address}", shown, options=options)
