"""Reservations of sessions, and admission of new ones."""

from asyncio import timeout
from dataclasses import dataclass

from agent.changes.feed import Feed
from agent.domain.errors import DrainingError, StartQueueFullError
from agent.domain.host.capacity import Capacity
from agent.domain.host.ports import PortPool
from agent.domain.kept.prepared import Prepared
from agent.domain.sessions.session import Session
from agent.kernel.disks import Disks
from agent.network.tls_ports import TlsPorts
from agent.settings.policy import Policy
from agent.state.drain import HostDrain
from tiltyard.runtime.fair_queue import FairSlots


class StartSlots(FairSlots):
    """Limit of concurrent container starts, of which an account has at most its share.

    More starts would only slow each of them down.
    """

    def __init__(self, slots: int) -> None:
        super().__init__(lambda: slots)
        self.slots = slots

    async def acquire(self, account: str, within: float | None = None) -> None:
        """Take a slot; StartQueueFullError when none is free within `within` seconds."""
        if self.take(account):
            return
        try:
            async with timeout(within):
                await self.wait(account)
        except TimeoutError:
            raise StartQueueFullError(self.slots) from None

    def has_spare(self, account: str) -> bool:
        """Return whether a standby of an account may start.

        Its sessions come first: none waits, and a quarter of the slots stays in its share.
        """
        return not self.waiting.has(account) and self.may_hold(account, 1 + self.slots // 4)


@dataclass(frozen=True, slots=True, eq=False)
class Reservations:
    """Capacity, ports and start slots of a host, with the conditions for admission."""

    capacity: Capacity
    ports: PortPool
    tls_ports: TlsPorts
    start_slots: StartSlots
    drain: HostDrain
    disks: Disks
    policy: Policy
    feed: Feed

    def take(self, session: Session, prepared: Prepared | None = None) -> Session:
        """Reserve all that a new session needs, or nothing, without yielding to the event loop.

        With `prepared` the session takes this container, and its ports.
        Raises the admission errors of StartSession in agent.proto.
        """
        spec = session.spec
        if self.drain.now.draining:
            raise DrainingError
        self.disks.check()
        self.policy.check_spec(spec)
        self.tls_ports.check(spec)
        gpu_ids = self.capacity.reserve(session.internal_id, spec.reservation)
        try:
            if prepared is None:
                session = self._with_ports(session)
            else:
                session = self._with_container(session, prepared)
        except Exception:
            self.capacity.release(session.internal_id)
            raise
        return session.with_changes(gpu_ids=gpu_ids)

    def adopt(self, session: Session) -> None:
        """Reserve what an existing session holds, even beyond capacity."""
        self.ports.adopt(session.internal_id, session.ports)
        self.tls_ports.adopt(session)
        self.capacity.adopt(session.internal_id, session.spec.reservation, session.gpu_ids)

    def open_ports(self, session: Session) -> None:
        """Open the ports of a session whose container was made before it.

        Raises:
            PortTakenError: Another process has begun to use a port that no engine keeps for it.
            NoCertificateError: It has TLS ports, and there is no certificate.
        """
        if session.spec.in_host:
            self.ports.check_unused(session.ports)
        self.tls_ports.open(session)

    def swap_ports(self, session: Session) -> Session:
        """Exchange a session's ports for others; NoFreePortError when there are none."""
        self.ports.release(session.internal_id)
        return self._with_ports(session)

    def release(self, internal_id: str) -> None:
        """Release all of a session's reservations and notify the watchers."""
        self.capacity.release(internal_id)
        self.tls_ports.close(internal_id)
        self.ports.release(internal_id)
        self.feed.host_changed()

    def _with_container(self, session: Session, prepared: Prepared) -> Session:
        return session.with_changes(
            prepared=prepared.prepared_id,
            container=prepared.container.container,
            ports=self.ports.transfer(prepared.prepared_id, session.internal_id),
        )

    def _with_ports(self, session: Session) -> Session:
        spec = session.spec
        ports = self.ports.reserve(
            session.internal_id, spec.ports, in_host=spec.in_host, contiguous=spec.contiguous
        )
        return session.with_changes(ports=ports)
