"""AgentService over mutual TLS; `statuses` checks the client's name on every call."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

import grpc

from agent.rpc.identity import Identity, UnfitIdentityError
from agent.rpc.renewal import HostIdentity
from tiltyard.runtime.atomic_file import Signature, signature
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

MAX_CONNECTIONS = 256
"""The control plane needs one or two. Keeps strangers from exhausting the agent's open files."""
LARGEST_MESSAGE_BYTES = 4 * 2**20
SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", LARGEST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", LARGEST_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),
    # A vanished control plane is detected within 8 s, and its streams end.
    ("grpc.keepalive_time_ms", 4_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.http2.ping_timeout_ms", 4_000),
    ("grpc.http2.max_pings_without_data", 0),
    # By default a stream runs thousands of messages ahead of a reader that does not read. This is
    # 2.5 MB/s at a round trip of 100 ms.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 256 * 1024),
    # The control plane pings idle connections as often.
    ("grpc.http2.min_ping_interval_without_data_ms", 2_000),
)
NETWORK_OPTIONS = (
    ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_metadata_size", 16 * 1024),
)
_GRPC_LOG = logging.getLogger("grpc._cython.cygrpc")
RETRY_SECONDS = 1.0  # Between attempts while there is no identity or the port is in use
GRACE_SECONDS = 2.0  # Grace period of calls in progress when the server stops


def new_server(options: Sequence[tuple[str, object]] = ()) -> grpc.aio.Server:
    """Create a server; without options of its own it is for the unix socket."""
    _GRPC_LOG.addFilter(_names_a_defect)
    return grpc.aio.server(options=[*SERVER_OPTIONS, *options])


def _names_a_defect(record: logging.LogRecord) -> bool:
    """Leave out that a caller went away while a message was written to it, which is usual."""
    return record.exc_info is None or not isinstance(record.exc_info[1], grpc.aio.InternalError)


class NotYetError(Exception):
    """The port cannot be opened yet; the text states the cause."""


class Certificates:
    """Certificates for handshakes, reloaded from the identity's file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._seen: Signature = ()
        self._host = ""
        self.enrolled_again = asyncio.Event()  # Set once the host has another URI than at first

    def load(self) -> grpc.ServerCertificateConfiguration | None:
        """Read the file; None if unchanged. Blocks; raises NotYetError without an identity."""
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
        self._host = self._host or host
        trusted = identity.trusted
        if host != self._host:
            self._loop.call_soon_threadsafe(self.enrolled_again.set)
            trusted = identity.certificate  # not an authority: rejects all callers
        return grpc.ssl_server_certificate_configuration(
            [(identity.key, identity.certificate)], trusted
        )

    def newer(self) -> grpc.ServerCertificateConfiguration | None:
        """Return changed certificates or None. gRPC calls it per handshake, on its threads."""
        try:
            return self.load()
        except NotYetError as problem:
            log.warning("keeping the previous certificate", error=str(problem))
            return None


@dataclass(eq=False)
class TlsServer:
    """The listener of `rpc_listen`, once the host is enrolled."""

    address: str
    identity: HostIdentity
    clock: Clock
    _: KW_ONLY
    add_services: Callable[[grpc.aio.Server], None]
    end_streams: Callable[[], None]
    """Ends streams that would continue forever."""
    serving: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set once the port is open."""
    _problem: str = field(default="", init=False)

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence on the cause if the control plane cannot call this host; else none."""
        return (f"not serving at {self.address}: {self._problem}",) if self._problem else ()

    async def run(self) -> None:
        """Serve until cancelled; wait while the host is not enrolled or the port is in use.

        A new enrolment closes all connections: the old authority may be compromised.
        """
        while True:
            try:
                server, certificates = await self._open()
            except NotYetError as problem:
                if str(problem) != self._problem:
                    self._problem = str(problem)
                    log.warning("not serving yet", address=self.address, error=self._problem)
                await self.clock.sleep(RETRY_SECONDS)
                continue
            self._problem = ""
            log.info("serving", address=self.address)
            self.serving.set()
            try:
                await certificates.enrolled_again.wait()
                log.info("enrolled again: closing all connections", address=self.address)
            finally:
                self.end_streams()
                await server.stop(GRACE_SECONDS)

    async def _open(self) -> tuple[grpc.aio.Server, Certificates]:
        certificates = Certificates(self.identity.path)
        first = await self.identity.run(certificates.load)
        server = new_server(NETWORK_OPTIONS)
        self.add_services(server)
        credentials = grpc.dynamic_ssl_server_credentials(
            first,
            certificates.newer,  # type: ignore[arg-type]  # the stubs lack None
            require_client_authentication=True,
        )
        try:
            server.add_secure_port(self.address, credentials)
        except RuntimeError as error:  # its text has no cause
            cause = "cannot listen there: `ss -lntp` shows the process that has the port"
            raise NotYetError(cause) from error
        await server.start()
        return server, certificates
