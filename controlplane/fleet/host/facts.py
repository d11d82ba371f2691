"""The state of one host, for readers; only `HostState` changes it."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

from controlplane.agent_rpc.client import AgentClient
from controlplane.domain.hosts.agents import Agent
from controlplane.domain.hosts.contract import Drain, HostReport, HostSession, WrittenSession
from controlplane.domain.hosts.desired_state import DesiredState
from controlplane.domain.hosts.host_events import HostEvent, LatencyChanged, Observer
from controlplane.domain.hosts.host_latency import HostLatency
from controlplane.domain.hosts.reported_sessions import LastReport, ReportedSessions, TakenPorts
from controlplane.domain.placement.host_room import HostRoom, Slots
from controlplane.domain.placement.placement import HostView, Wanted
from controlplane.domain.placement.start_failures import Owner, StartFailures
from controlplane.fleet.host.in_flight import StartsInFlight
from controlplane.fleet.host.start_slots import StartSlots
from tiltyard.contract import Protocol


class HostFacts:
    """The state of one host, read-only. Nothing here waits."""

    def __init__(self, row: Agent, client: AgentClient) -> None:
        self.name = row.name
        self._row = row
        self.client = client
        self.observers: list[Observer] = []
        """Called with each event, in the step in which the host changes."""
        self.latency = HostLatency(lambda: self._publish(LatencyChanged()))
        self._removed = False
        self._tried = False
        self._report: HostReport | None = None
        self._incarnation = ""
        self._sequence = 0
        self._reported_at: float | None = None
        self._reconciled = False
        self._images_known = False
        self._in_doubt = False
        self._is_newer = False
        self._desired = DesiredState(row.drain)
        self._lost = row.lost
        self._failures = StartFailures()
        self._unclaimed: set[str] = set()
        self._image_sizes: Mapping[str, int] = {}
        self._ports = TakenPorts()
        self._sessions = ReportedSessions(self._ports)
        self._in_flight = StartsInFlight()
        self._start_slots = StartSlots()
        self._claiming: set[str] = set()  # Standbys whose claim a task of this process handles

    def _publish(self, event: HostEvent) -> None:
        for observer in self.observers:
            observer(event)

    @property
    def row(self) -> Agent:
        """The agent's row, as last read or written."""
        return self._row

    @property
    def report(self) -> HostReport | None:
        """The last report, with the images and the pending drain order; None before the first."""
        return self._report

    @property
    def incarnation(self) -> str:
        """The incarnation of the agent that has reported last."""
        return self._incarnation

    @property
    def sequence(self) -> int:
        """The Watch sequence up to which the host has reported."""
        return self._sequence

    @property
    def reported_at(self) -> float | None:
        """The time of the last report of the host, in seconds of the `ListeningClock`."""
        return self._reported_at

    @property
    def image_sizes(self) -> Mapping[str, int]:
        """Unpacked bytes of the host's images."""
        return self._image_sizes

    @property
    def removed(self) -> bool:
        """True once the fleet has removed it."""
        return self._removed

    @property
    def tried(self) -> bool:
        """True once it has reconciled or could not be reached."""
        return self._tried

    @property
    def reconciled(self) -> bool:
        """True once it has reported all its sessions to this process."""
        return self._reconciled

    @property
    def has_reported(self) -> bool:
        """True once it has reported all its sessions and images to this process."""
        return self._reconciled and self._images_known

    @property
    def in_doubt(self) -> bool:
        """True after a start without an answer or a refused claim, until the next report."""
        return self._in_doubt

    @property
    def is_newer(self) -> bool:
        """True while it reports a newer format than this program can read."""
        return self._is_newer

    @property
    def desired(self) -> DesiredState:
        """The orders of the host; `HostOrders` gives and sends them."""
        return self._desired

    @property
    def drain(self) -> Drain:
        """The newest drain order, given to the control plane or on the host."""
        return self._desired.drain

    @property
    def lost(self) -> float | None:
        """The time when the host and its sessions were given up as lost; None if they were not."""
        return self._lost

    @property
    def failures(self) -> StartFailures:
        """The failed starts; `note_failure` and `note_success` change them."""
        return self._failures

    @property
    def unclaimed(self) -> AbstractSet[str]:
        """Internal ids of live sessions without a valid ticket or a known account."""
        return self._unclaimed

    @property
    def starting(self) -> frozenset[str]:
        """The attempts whose call from this process has no answer yet."""
        return self._in_flight.called

    @property
    def under_way(self) -> frozenset[str]:
        """The attempts and claims whose outcome a task of this process handles."""
        return self.starting | self._claiming

    @property
    def in_flight(self) -> int:
        """The number of starts that hold a reservation here."""
        return len(self._in_flight)

    @property
    def draining(self) -> bool:
        """True if the host is draining, or an order to drain is pending."""
        return self._desired.drain.draining if self._report is None else self._report.draining

    @property
    def drain_pending(self) -> bool:
        """True until the host has reported the newest drain order."""
        return self._desired.drain_pending

    @property
    def live_sessions(self) -> int:
        """The number of live sessions, including unclaimed ones."""
        return sum(1 for _ in self.live())

    def live(self) -> Iterator[HostSession | WrittenSession]:
        """Iterate over the live sessions; do not await meanwhile."""
        for session in self._sessions:
            if not session.state.ended and not session.is_standby:
                yield session

    def session(self, internal_id: str) -> HostSession | None:
        """Return the last report of a session on this host."""
        seen = self._sessions.get(internal_id)
        return seen.session if seen is not None else None

    def seen(self, internal_id: str) -> LastReport | None:
        """Return the last report of a session on this host, with its incarnation."""
        return self._sessions.get(internal_id)

    def report_age(self, now: float) -> float:
        """Return the seconds since the last report; infinite if there was none."""
        return float("inf") if self._reported_at is None else now - self._reported_at

    @property
    def is_placeable(self) -> bool:
        """Return whether enough is known of the host to choose it."""
        is_known = self._report is not None and self._reconciled
        return is_known and not self._is_newer and self._lost is None

    @property
    def takes_starts(self) -> bool:
        """Return whether any start can begin here now."""
        return self.has_start_slot() or (self._report is not None and bool(self._report.prepared))

    def can_begin(self, wanted: Wanted) -> bool:
        """Return whether a start can begin here now, with a prepared container or in a slot."""
        return self.spare(wanted.shape) > 0 or self.has_start_slot(wanted.account)

    def spare(self, shape: str) -> int:
        """Return how many prepared containers of a shape no start in flight counts on."""
        return 0 if self._report is None else self._in_flight.spare(self._report.prepared, shape)

    @property
    def spare_shapes(self) -> frozenset[str]:
        """The shapes of which it has a prepared container to spare."""
        prepared = {} if self._report is None else self._report.prepared
        return frozenset(shape for shape in prepared if self._in_flight.spare(prepared, shape))

    def has_start_slot(self, account: str = "") -> bool:
        """Return whether a start of an account can begin here now; "" holds no slots."""
        return self._report is not None and self._start_slots.has_one(
            account, self._report.start_slots
        )

    @property
    def slots(self) -> Slots:
        """The accounts for which it has a start slot."""
        return (
            Slots() if self._report is None else self._start_slots.left(self._report.start_slots)
        )

    @property
    def room(self) -> HostRoom | None:
        """Resources that the host has left for starts; None if no session can be placed on it."""
        report = self._report
        if report is None or not self.is_placeable:
            return None
        in_flight, held = self._in_flight.held()
        return HostRoom.of(report, held, in_flight)

    @property
    def image_names(self) -> frozenset[str]:
        """The images that the host has pulled."""
        return frozenset() if self._report is None else self._report.images

    @property
    def taken_ports(self) -> Mapping[Protocol, AbstractSet[int]]:
        """The host ports that starts in flight and live sessions use; the sets stay current."""
        return {protocol: uses.keys() for protocol, uses in self._ports.by_protocol.items()}

    def view(self, now: float, owner: Owner = ("", "")) -> HostView | None:
        """Return the host as placement sees it; None before it has reconciled, or if newer."""
        if self._report is None or not self.is_placeable:
            return None
        in_flight, held = self._in_flight.held()
        return HostView(
            agent=self.name,
            host=self._report,
            report_age=self.report_age(now),
            held=held,
            starting=self._start_slots.used,
            starting_of_account=self._start_slots.held(owner[0]),
            in_flight=in_flight,
            spare=self.spare,
            used_ports=self._ports.all,
            latency=self.latency.seconds,
            in_doubt=self._in_doubt,
            failure=self._failures.avoided(owner, now),
        )
