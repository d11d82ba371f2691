"""TLS ports: the agent terminates TLS on the host port and forwards plaintext to the session.

It dials the container's address on its bridge, which changes with each start, or 127.0.0.1 in the
host's network. It listens from before the container is created until the session has ended.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from agent.domain.errors import AgentError, NoCertificateError
from agent.domain.sessions.session import Port, Process, Session
from agent.kernel.processes import live_process
from agent.network.tls_certificate import CertificateFiles, HostCertificate
from agent.network.tls_gate import Gate, Limits
from agent.network.tls_listener import Destination, Shared, TlsListener
from tiltyard.contract import SessionSpec, State
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import Threads, contained

log = get_logger(__name__)

LOOK_SECONDS = 10.0
"""Between checks of the certificate's files, and between attempts to bind missing ports."""
LOAD_SECONDS = 5.0  # Timeout of reading the files, whose disk may hang
LOOPBACK = "127.0.0.1"


class TlsPorts:
    """The TLS ports of one host's sessions.

    Without `files`, only sessions from before a restart have any. `notify` is called when
    `available` or `warnings` change.
    """

    def __init__(
        self,
        files: CertificateFiles | None,
        clock: Clock,
        *,
        bind_address: str,
        notify: Callable[[], None],
        limits: Limits | None = None,
    ) -> None:
        self._certificate = HostCertificate(files)
        self._clock = clock
        self._bind_address = bind_address
        self._notify = notify
        limits = limits or Limits()
        self._shared = Shared(Gate(limits), limits, self._certificate, self._lives)
        self._listeners: dict[str, dict[Port, TlsListener]] = {}
        self._missing: dict[str, Session] = {}
        """Adopted sessions with a port that could not be bound yet."""
        self._files_thread = ThreadPoolExecutor(1, "tls-files")
        self._processes = Threads(1, "tls-processes")
        self._looking: asyncio.Future[None] | None = None
        self._reported: tuple[bool, tuple[str, ...]] = (False, ())

    # -- for sessions --------------------------------------------------------------------------

    def check(self, spec: SessionSpec) -> None:
        """Raise NoCertificateError if the session needs TLS ports and none can be served."""
        if any(port.tls for port in spec.ports) and not self.available:
            raise NoCertificateError

    def open(self, session: Session) -> None:
        """Listen on every TLS port or none; raises NoCertificateError or PortTakenError."""
        self.close(session.internal_id)
        self.check(session.spec)
        try:
            self._listen(session)
        except AgentError:
            self.close(session.internal_id)
            raise

    def adopt(self, session: Session) -> None:
        """Listen for a session from before a restart; missing ports are retried."""
        try:
            self._listen(session)
        except AgentError as error:
            log.warning(
                "cannot serve TLS ports yet", session=session.internal_id, error=str(error)
            )
            self._missing[session.internal_id] = session
        self.follow(session)

    def follow(self, session: Session) -> None:
        """Update where the session's ports lead: to its current process, or nowhere."""
        if session.internal_id in self._missing:
            self._missing[session.internal_id] = session
        for port, listener in self._listeners.get(session.internal_id, {}).items():
            listener.destination = destination_of(session, port)

    def close(self, internal_id: str) -> None:
        """Release a session's ports. Its connections have `linger` seconds to deliver data."""
        self._missing.pop(internal_id, None)
        for listener in self._listeners.pop(internal_id, {}).values():
            listener.close()

    # -- for the host --------------------------------------------------------------------------

    @property
    def available(self) -> bool:
        """True while there is a valid certificate."""
        pair = self._certificate.pair
        return pair is not None and pair.is_valid(self._clock.time())

    @property
    def expire_time(self) -> float | None:
        """Expiry of the certificate in Unix time, or None."""
        pair = self._certificate.pair
        return None if pair is None else pair.expire_time

    @property
    def connections(self) -> int:
        """Number of open connections, including handshakes."""
        return self._shared.gate.open

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the host's report."""
        found = self._certificate.warnings(self._clock.time())
        lacking = f"TLS ports of {len(self._missing)} sessions are in use by others"
        return (*found, lacking) if self._missing else found

    async def run(self) -> None:
        """Check every LOOK_SECONDS, forever."""
        while True:
            await self.look()
            await self._clock.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Check the certificate's files once, and retry missing ports."""
        if self._certificate.files is not None:
            await self._look_at_files()
        for session in list(self._missing.values()):
            with contained("cannot serve TLS ports: internal error", session=session.internal_id):
                self._retry(session)
        self._report_changes()

    async def stop(self) -> None:
        """Close all connections and release all ports."""
        for internal_id in [*self._listeners]:
            self.close(internal_id)
        await self._shared.connections.close()
        self._files_thread.shutdown(wait=False, cancel_futures=True)
        await self._processes.close()

    def _listen(self, session: Session) -> None:
        mine = self._listeners.setdefault(session.internal_id, {})
        for port in session.ports:
            if port.tls and port not in mine:
                mine[port] = TlsListener(self._bind_address, port.host, self._shared)

    def _retry(self, session: Session) -> None:
        """Listen on the ports that could not be bound when the session was adopted."""
        try:
            self._listen(session)
        except AgentError as error:
            log.debug("cannot serve TLS ports yet", session=session.internal_id, error=str(error))
        else:
            del self._missing[session.internal_id]
            log.info("TLS ports are served again", session=session.internal_id)
        self.follow(session)

    async def _look_at_files(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().run_in_executor(
                self._files_thread, self._certificate.look, self._clock.time()
            )
        await asyncio.wait({self._looking}, timeout=LOAD_SECONDS)
        if not self._looking.done():
            log.warning("cannot read the certificate for TLS ports in time", seconds=LOAD_SECONDS)
        elif error := self._looking.exception():
            log.error("cannot read the certificate for TLS ports: internal error", exc_info=error)

    async def _lives(self, process: Process) -> bool:
        return await self._processes.run(live_process, process.pid) == process

    def _report_changes(self) -> None:
        now = (self.available, self.warnings)
        if now == self._reported:
            return
        for warning in now[1]:
            if warning not in self._reported[1]:
                log.warning("TLS port warning", error=warning)
        self._reported = now
        self._notify()


def destination_of(session: Session, port: Port) -> Destination | None:
    """Return where the plaintext of a port goes; None without a process."""
    runs = session.state in {State.RUNNING, State.SHUTTINGDOWN}
    if session.process is None or not runs:
        return None
    if session.spec.in_host:
        return Destination(LOOPBACK, port.inner, session.process)
    if not session.address:
        return None
    return Destination(session.address, port.container, session.process)
