"""The client of one agent: protobuf ends here, and in `agent_wire.py`.

Every call has a deadline. A
failure with a reason is an answer (AgentRefusedError); one without, such as a passed deadline or a
broken connection, says nothing about what the agent did (AgentSilentError).
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import grpc

from controlplane.errors import AgentReason, AgentRefusedError, AgentSilentError
from controlplane.fleet.agent_wire import (
    credentials_out,
    report_in,
    session_in,
    spec_out,
    watch_message_in,
)
from controlplane.fleet.contract import (
    Answer,
    PullProgress,
    RegistryLogin,
    SessionSpec,
    WatchMessage,
)
from controlplane.fleet.session_report import SessionReport
from tiltyard.agent.v1 import agent_pb2, agent_pb2_grpc

REASON_METADATA = "tiltyard-error-reason"
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

RENEW_TIMEOUT = 15.0
"""An agent makes a key, or writes a certificate to its disk."""

_Stream = TypeVar("_Stream", bound=grpc.aio.RpcContext)
_HUNG_UP = "the control plane has hung up on the agent"
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A connection whose other end is gone is found within 8 s.
    ("grpc.keepalive_time_ms", 4_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.http2.ping_timeout_ms", 4_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A host that is back is found within a second; an attempt to connect has 2 s.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_retries", 0),
)


@dataclass(frozen=True, slots=True)
class Credentials:
    """How we show ourselves to an agent and know it, as PEM texts; `host` is its DNS name."""

    authority: bytes = field(repr=False)
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)
    host: str


class AgentClient:
    """Speaks with one agent over one channel."""

    def __init__(self, address: str, credentials: Credentials | None = None) -> None:
        """Name the agent's address, such as `unix:/run/tiltyard/agent.sock`; dials lazily.

        Over a network by mutual TLS, with `credentials`.
        """
        self._address = address
        self._left: dict[grpc.aio.Channel, asyncio.Task[None]] = {}
        self._dial(credentials)

    def redial(self, credentials: Credentials | None = None) -> None:
        """Make new calls on a new connection, with other credentials where some are given.

        Those under way go on with theirs.
        """
        left = self._channel
        closing = asyncio.create_task(
            left.close(FOLLOW_TIMEOUT), name=f"end of the last channel to {self._address}"
        )
        self._left[left] = closing
        closing.add_done_callback(lambda _: self._left.pop(left, None))
        self._dial(credentials or self._credentials)

    async def close(self) -> None:
        """Hang up, which ends every call."""
        closing = list(self._left.values())
        for channel in (self._channel, *self._left):
            await channel.close()
        await asyncio.gather(*closing)

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
                yield watch_message_in(response)
        raise AgentSilentError("the agent ended the stream")

    async def start_session(self, internal_id: str, spec: SessionSpec, timeout: float) -> Answer:
        """Start a session. Idempotent on the internal id. Raises as `watch`."""
        request = agent_pb2.StartSessionRequest(internal_id=internal_id, spec=spec_out(spec))
        with _translated():
            response = await self._stub.StartSession(request, timeout=timeout)
            return _answer(response, internal_id)

    async def stop_session(self, internal_id: str, timeout: float, *, discard: bool) -> Answer:
        """Stop a session and wait for its end, at most `timeout` seconds. Raises as `watch`.

        `discard` has the host remove all that is left of it: nobody will ask for it again.
        """
        request = agent_pb2.StopSessionRequest(
            internal_id=internal_id, reason=agent_pb2.END_REASON_STOPPED, discard=discard
        )
        with _translated():
            response = await self._stub.StopSession(request, timeout=timeout)
            return _answer(response, internal_id)

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
            return report_in(response)

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
        request = agent_pb2.PullImageRequest(image=image, credentials=credentials_out(login))
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

    async def renew_certificate(self, certificate: bytes = b"") -> bytes:
        """Have the agent make a key and ask for a certificate, or install the one for its key.

        Gives the signing request, or nothing. Raises as `watch`.
        """
        request = agent_pb2.RenewCertificateRequest(certificate=certificate)
        with _translated():
            response = await self._stub.RenewCertificate(request, timeout=RENEW_TIMEOUT)
            return response.signing_request

    async def remove_image(self, image: str) -> None:
        """Have an image removed that nothing on the host uses. Idempotent. Raises as `watch`."""
        request = agent_pb2.RemoveImageRequest(image=image)
        with _translated():
            await self._stub.RemoveImage(request, timeout=REMOVE_TIMEOUT)

    def _dial(self, credentials: Credentials | None) -> None:
        self._credentials = credentials
        self._channel = _channel(self._address, credentials)
        self._stub = agent_pb2_grpc.AgentServiceStub(self._channel)


def _answer(
    response: agent_pb2.StartSessionResponse | agent_pb2.StopSessionResponse, internal_id: str
) -> Answer:
    if response.session.internal_id != internal_id:
        raise ValueError("another session than it was asked for")
    return Answer(session_in(response.session), response.incarnation)


def _channel(address: str, credentials: Credentials | None) -> grpc.aio.Channel:
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=_OPTIONS)
    shown = grpc.ssl_channel_credentials(
        credentials.authority, credentials.key, credentials.certificate
    )
    # Its certificate is for this name, wherever the agent is reached.
    options = (*_OPTIONS, ("grpc.ssl_target_name_override", credentials.host))
    # The scheme keeps a host from being one itself: `unix:7444` is a socket here otherwise.
    return grpc.aio.secure_channel(f"dns:///{address}", shown, options=options)


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
