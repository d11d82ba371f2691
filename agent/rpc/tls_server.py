"""AgentService on a network: mutual TLS, and only for the control plane.

gRPC itself refuses every handshake without a client's certificate of our authority;
`unused_connections` counts them. The caller's name is checked on every call, since an authority
signs for agents, too.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from agent.rpc.identity import HostIdentity, Identity, UnfitIdentityError
from agent.rpc.statuses import Context
from agent.rpc.unused_connections import UnusedConnections
from tiltyard.runtime.atomic_file import Signature, signature
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

CALLER_URI = b"tiltyard://controlplane"
MAX_CONNECTIONS = 256
"""The control plane has one or two. Without a bound strangers take all the agent's open files, and
with them its engine's socket; what is over it is closed at once."""
LARGEST_MESSAGE_BYTES = 4 * 2**20
SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", LARGEST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", LARGEST_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),
    # A control plane that is gone without a word is found within 8 s, and its streams end.
    ("grpc.keepalive_time_ms", 4_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.http2.ping_timeout_ms", 4_000),
    ("grpc.http2.max_pings_without_data", 0),
    # It asks as often, also when nothing was said in between.
    ("grpc.http2.min_ping_interval_without_data_ms", 2_000),
)
NETWORK_OPTIONS = (
    ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_metadata_size", 16 * 1024),
)
RETRY_SECONDS = 1.0
"""To look again for an identity, or for the port that another process still has."""
LOG_SECONDS = 60.0
"""Interval of log lines about refused calls, with their number."""
GRACE_SECONDS = 2.0
"""How long calls in progress may take when the agent stops."""


def new_server() -> grpc.aio.Server:
    """Make a server for a unix socket, which needs no certificate."""
    return grpc.aio.server(options=SERVER_OPTIONS)


class NotYetError(Exception):
    """The port cannot be opened now; the text says why."""


class Certificates:
    """What handshakes are made with: the identity's file as it is now."""

    def __init__(self, path: Path, asked: Callable[[], None]) -> None:
        """Name the file; made on the event loop, on which `asked` is called for each handshake."""
        self._path = path
        self._asked = asked
        self._loop = asyncio.get_running_loop()
        self._seen: Signature = ()
        self._host = ""
        self.enrolled_again = asyncio.Event()
        """Set once the host is another one than at first."""

    def load(self) -> grpc.ServerCertificateConfiguration | None:
        """Read the file if it is another than the last time. Blocks.

        Raises:
            NotYetError: It cannot be read, or this host is not enrolled.
        """
        try:
            found = signature(self._path)
            if found and found == self._seen:
                return None
            self._seen = found
            identity = Identity.read(self._path)
            host = identity.uri if identity is not None else ""
        except FileNotFoundError:
            identity = None
        except (OSError, UnfitIdentityError) as error:
            raise NotYetError(str(error)) from error
        if identity is None:
            raise NotYetError("this host is not enrolled: `tiltyard-agent enrol` does it")
        self._host, trusted = self._host or host, identity.trusted
        if host != self._host:
            self._loop.call_soon_threadsafe(self.enrolled_again.set)
            trusted = identity.certificate  # which signs nobody's: none is let in before that
        return grpc.ssl_server_certificate_configuration(
            [(identity.key, identity.certificate)], trusted
        )

    def newer(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the new certificates; None if nothing has changed.

        gRPC calls it before every handshake, on its own threads.
        """
        self._loop.call_soon_threadsafe(self._asked)
        try:
            return self.load()
        except NotYetError as problem:
            tell = partial(log.warning, "the last certificate stays in use", error=str(problem))
            self._loop.call_soon_threadsafe(tell)
            return None


class OnlyTheControlPlane(grpc.aio.ServerInterceptor):
    """Refuses every call whose certificate does not name the control plane."""

    def __init__(self, clock: Clock, unused: UnusedConnections) -> None:
        self._clock = clock
        self._unused = unused
        self._refused = 0
        self._told_at: float | None = None

    async def intercept_service(
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Put the question before the method."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(
                self._stream(handler.unary_stream),
                handler.request_deserializer,
                handler.response_serializer,
            )
        assert handler.unary_unary is not None, "no method takes a stream"
        return grpc.unary_unary_rpc_method_handler(
            self._unary(handler.unary_unary),
            handler.request_deserializer,
            handler.response_serializer,
        )

    def _unary(self, method: Callable[..., Any]) -> Callable[..., Any]:
        async def answer(request: Any, context: Context) -> Any:
            await self._admit(context)
            return await method(request, context)

        return answer

    def _stream(self, method: Callable[..., Any]) -> Callable[..., Any]:
        async def answer(request: Any, context: Context) -> AsyncGenerator[Any]:
            await self._admit(context)
            messages = method(request, context)
            if inspect.isawaitable(messages):  # it writes by itself
                await messages
                return
            async with aclosing(messages):
                async for message in messages:
                    yield message

        return answer

    async def _admit(self, context: Context) -> None:
        self._unused.called(context.peer())
        names = context.auth_context().get("peer_uri", [])
        if list(names) == [CALLER_URI]:
            return
        self._tell(context.peer(), names)
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "only the control plane may call")

    def _tell(self, peer: str, names: Any) -> None:
        self._refused += 1
        now = self._clock.monotonic()
        if self._told_at is None or now - self._told_at >= LOG_SECONDS:
            log.warning("refused calls", count=self._refused, address=peer, name=names)
            self._refused, self._told_at = 0, now


class TlsServer:
    """The listener of `rpc_listen`, from the moment that the host is enrolled."""

    def __init__(
        self,
        address: str,
        identity: HostIdentity,
        clock: Clock,
        *,
        add_services: Callable[[grpc.aio.Server], None],
        end_streams: Callable[[], None],
    ) -> None:
        """Serve what `add_services` adds; `end_streams` ends endless streams."""
        self._address = address
        self._identity = identity
        self._clock = clock
        self._add_services = add_services
        self._end_streams = end_streams
        self._problem = ""
        self.unused_connections = UnusedConnections(address, clock)
        self.serving = asyncio.Event()
        """Set once the port answers."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What keeps the control plane from calling this host; empty while the port answers."""
        return (f"not serving at {self._address}: {self._problem}",) if self._problem else ()

    async def run(self) -> None:
        """Serve until cancelled; wait where the host is not enrolled or the port is taken.

        After another enrolment all connections are closed: the authority they relied on may
        have been stolen.
        """
        while True:
            server, certificates = await self._opened()
            log.info("serving", address=self._address)
            self.serving.set()
            try:
                await certificates.enrolled_again.wait()
                log.info("enrolled again: closing all connections", address=self._address)
            finally:
                self._end_streams()
                await server.stop(GRACE_SECONDS)

    async def _opened(self) -> tuple[grpc.aio.Server, Certificates]:
        while True:
            try:
                opened = await self._open()
            except NotYetError as problem:
                if str(problem) != self._problem:
                    self._problem = str(problem)
                    log.warning("not serving yet", address=self._address, error=self._problem)
                await self._clock.sleep(RETRY_SECONDS)
            else:
                self._problem = ""
                return opened

    async def _open(self) -> tuple[grpc.aio.Server, Certificates]:
        certificates = Certificates(self._identity.path, self.unused_connections.began)
        first = await self._identity.run(certificates.load)
        server = grpc.aio.server(
            interceptors=[OnlyTheControlPlane(self._clock, self.unused_connections)],
            options=[*SERVER_OPTIONS, *NETWORK_OPTIONS],
        )
        self._add_services(server)
        credentials = grpc.dynamic_ssl_server_credentials(
            first,
            certificates.newer,  # type: ignore[arg-type]  # the stubs lack None
            require_client_authentication=True,
        )
        try:
            server.add_secure_port(self._address, credentials)
        except RuntimeError as error:  # whose text tells no cause
            told = "cannot listen there: `ss -lntp` shows who has the port, if it is another's"
            raise NotYetError(told) from error
        await server.start()
        return server, certificates
