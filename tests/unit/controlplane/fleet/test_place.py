"""The index of a place against the scan of its hosts, which is the specification.

`placement` says of each host whether it can take a start, and how it ranks. After any changes of
any hosts, the index chooses a host of the best rank, and none if the scan finds none.
"""

from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.domain.errors import AgentRefusedError
from controlplane.domain.hosts import contract
from controlplane.domain.hosts.agents import Agent
from controlplane.domain.hosts.contract import Answer, HostReport, HostSession, Port, WatchMessage
from controlplane.domain.placement import placement
from controlplane.domain.placement.host_index import Moment
from controlplane.domain.placement.placement import HostView, Strategy, Wanted
from controlplane.domain.placement.start_failures import Owner
from controlplane.fleet.host.host import Host
from controlplane.fleet.host.state import HostState
from controlplane.fleet.place import Place
from tests.support.controlplane.ranking import rank_hosts
from tests.unit.controlplane.domain.placement.test_placement import HOST as SAMPLE
from tests.unit.controlplane.fleet.host.test_state import SESSION
from tiltyard.contract import ErrorReason, PortRequest, PreparedShape, Protocol, Resources, State

MAX_AGE = 5.0
IMAGES = ("a", "b")
IDS = ("i", "j", "k", "l")
FIRST = 20000
REFUSED = AgentRefusedError(ErrorReason.ENGINE_ERROR, "broken")


def udp(*pins: int) -> tuple[PortRequest, ...]:
    return tuple(PortRequest(1, Protocol.UDP, pinned=pin) for pin in pins)


PLAIN = Wanted("a", Resources(1, 1), udp(0), ("alice", "game"))
WANTED = {
    "plain": PLAIN,
    "of another application": replace(PLAIN, owner=("alice", "other")),
    "of another account": replace(PLAIN, owner=("bob", "game")),
    "another image": replace(PLAIN, image="b"),
    "shape s": replace(PLAIN, shape="s"),
    "shape t of another account": replace(PLAIN, shape="t", owner=("carol", "game")),
    "nothing": replace(PLAIN, reservation=Resources(), ports=()),
    "cores": replace(PLAIN, reservation=Resources(3, 0)),
    "memory": replace(PLAIN, reservation=Resources(0, 3)),
    "a GPU": replace(PLAIN, reservation=Resources(0, 0, 1)),
    "two ports": replace(PLAIN, ports=udp(0, 0)),
    "TCP": replace(PLAIN, ports=(PortRequest(1, Protocol.TCP),)),
    "TLS": replace(PLAIN, ports=(PortRequest(1, Protocol.TCP, tls=True),)),
    "a pinned port": replace(PLAIN, ports=udp(FIRST)),
    "the last port": replace(PLAIN, ports=udp(FIRST + 2)),
    "two pinned ports": replace(PLAIN, ports=udp(FIRST, FIRST + 1)),
    "a pinned TCP port": replace(PLAIN, ports=(PortRequest(1, Protocol.TCP, pinned=FIRST),)),
}
OWNERS = sorted({wanted.owner for wanted in WANTED.values()})
HOST = replace(
    SAMPLE,
    capacity=Resources(8, 8, 1),
    port_range_first=FIRST,
    port_range_last=FIRST + 2,
    start_slots=2,
    tls=True,
    prepared={"s": PreparedShape("s", "a", 1)},
    latency_addresses=("192.0.2.1",),
)
REPORTED: dict[str, list[Any]] = {
    "capacity": [Resources(8, 8), Resources(8, 4, 1), Resources(2, 8, 2)],
    "reserved": [Resources(2, 2), Resources(6, 0, 1), Resources(0, 7)],
    "free_sessions": [0, 1, 2],
    "port_range_first": [FIRST + 1],
    "port_range_last": [FIRST + 1],
    "free_tcp_ports": [0],
    "free_udp_ports": [0, 1],
    "tls": [False],
    "draining": [True],
    "engine_available": [False],
    "disk_full": [True],
    "start_slots": [0, 1, 3, 4],
    "starting": [frozenset("i"), frozenset("jk")],
    "prepared": [{}, {"s": PreparedShape("s", "a", 2)}, {"t": PreparedShape("t", "a", 1)}],
    "latency_addresses": [()],
}
STEPS = 40


def _a_host(name: str) -> HostState:
    return HostState(Agent(name, "unix:/h", "local", "default"), cast("Any", None))


def _with_state(state: HostState) -> Host:
    return cast("Host", SimpleNamespace(name=state.name, state=state))


class Hosts:
    """Hosts of one place, which change at random; the index follows them."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 0.0
        self.sequence = 0
        self.place = Place()
        self.hosts: list[HostState] = []
        for number in range(4):
            self.hosts.append(_a_host(f"h{number}"))
            self.place.add(_with_state(self.hosts[number]))
            self.host_connects(self.hosts[number])

    def change(self) -> None:
        """Change a host, or let time pass."""
        happens = self.random.choice(_CHANGES)
        happens(self, self.random.choice(self.hosts))

    def _tell(self, host: HostState, event: contract.WatchEvent | None) -> None:
        self.sequence += 1
        host.apply(WatchMessage("life", self.sequence, event), self.now)

    def _a_report(self) -> HostReport:
        changed = {
            name: self.random.choice(values)
            for name, values in REPORTED.items()
            if self.random.random() < 0.15
        }
        return replace(HOST, **changed)

    def _some_images(self) -> tuple[str, ...]:
        return tuple(image for image in IMAGES if self.random.random() < 0.7)

    def _an_id(self) -> str:
        return self.random.choice(IDS)

    def _a_session(self) -> HostSession:
        protocol = self.random.choice(list(Protocol))
        return replace(
            SESSION,
            internal_id=self._an_id(),
            ports=(Port(1, protocol, FIRST + self.random.randrange(3)),),
            state=self.random.choice([State.RUNNING, State.RUNNING, State.EXITED]),
            sequence=self.sequence + self.random.randrange(-1, 2),
        )

    # ---- what a host reports

    def host_connects(self, host: HostState) -> None:
        self.images_change(host)
        self._tell(host, self._a_report())
        self._tell(host, contract.SnapshotEnd(reconciled=True))
        host.note_reconciled()

    def report_changes(self, host: HostState) -> None:
        self._tell(host, self._a_report())

    def images_change(self, host: HostState) -> None:
        is_last = self.random.random() < 0.8
        self._tell(host, contract.ImagesReported(self._some_images(), first=True, last=is_last))

    def session_changes(self, host: HostState) -> None:
        self._tell(host, contract.SessionsReported((self._a_session(),)))

    def host_beats(self, host: HostState) -> None:
        self._tell(host, None)

    def snapshot_ends(self, host: HostState) -> None:
        host.drop_absent({self._an_id(), self._an_id()})

    def format_changes(self, host: HostState) -> None:
        host.note_format(is_newer=not host.is_newer)

    def drain_is_ordered(self, host: HostState) -> None:
        draining = self.random.random() < 0.3
        host.order_drain(contract.Drain(self.random.randrange(3), draining))

    def host_is_lost(self, host: HostState) -> None:
        host.lose(self.now)

    def host_is_replaced(self, host: HostState) -> None:
        self.place.remove(_with_state(host))
        number = self.hosts.index(host)
        self.hosts[number] = _a_host(host.name)
        self.place.add(_with_state(self.hosts[number]))

    def latency_is_measured(self, host: HostState) -> None:
        host.latency.forget()
        host.latency.note("192.0.2.1", self.random.choice([None, 0.001, 0.0011, 0.002]))

    # ---- what this process does

    def start_is_placed(self, host: HostState) -> None:
        host.hold(self._an_id(), self.random.choice(list(WANTED.values())))

    def start_fails(self, host: HostState) -> None:
        host.give_back(self._an_id())

    def start_is_answered(self, host: HostState) -> None:
        session = self._a_session()
        host.answered(session.internal_id, Answer(session, "life"))

    def session_is_forgotten(self, host: HostState) -> None:
        host.forget(self._a_session())

    def host_is_doubted(self, host: HostState) -> None:
        host.doubt()

    def host_fails(self, host: HostState) -> None:
        host.note_failure(self.random.choice(OWNERS), REFUSED, self.now, self.now)

    def host_succeeds(self, host: HostState) -> None:
        host.note_success(self.random.choice(OWNERS))

    def time_passes(self, _: HostState) -> None:
        self.now += self.random.choice([0.5, 2.0, 4.0])

    # ---- what must be true then

    def check_choice(self) -> None:
        """Compare the hosts for a random start with those of the scan."""
        name, wanted = self.random.choice(list(WANTED.items()))
        strategy = self.random.choice(list(Strategy))
        refused = frozenset(self.random.choice([(), (), ("h0",), ("h1", "h2")]))
        seen = self.views(wanted.owner)
        able = [view for view in seen.values() if view.agent not in refused]
        ranked = rank_hosts(able, wanted, strategy=strategy, max_age=MAX_AGE, random=self.random)
        chosen = self.place.index.best(
            wanted, self.moment, strategy=strategy, random=self.random, refused=refused
        )
        best = [placement.rank_start(view, wanted, strategy) for view in ranked[:1]]
        agents = [] if chosen is None else [chosen]
        found = [placement.rank_start(seen[agent], wanted, strategy) for agent in agents]
        assert found == best, name
        roomy = {
            agent for agent, view in seen.items() if placement.has_room(view, wanted, MAX_AGE)
        }
        assert set(self.place.index.with_room(wanted, self.moment)) == roomy, name
        lacking = self.place.index.lacking([(wanted, refused)], self.moment)
        assert lacking == (set() if roomy - refused else {(wanted, refused)}), name

    def check_images(self) -> None:
        """Compare the hosts with an image with those of the scan."""
        image = self.random.choice(IMAGES)
        views = self.views(PLAIN.owner).values()
        having = [view for view in views if image in view.host.images]
        usable = any(placement.is_usable(view, MAX_AGE) for view in having)
        assert self.place.index.has_usable(image, self.moment) == usable
        known = any(view.report_age <= 2 * MAX_AGE for view in having)
        later = replace(self.moment, max_age=2 * MAX_AGE)
        assert self.place.index.has_image(image, later) == known

    @property
    def moment(self) -> Moment:
        return Moment(now=self.now, max_age=MAX_AGE)

    def views(self, owner: Owner) -> dict[str, HostView]:
        views = (host.view(self.now, owner) for host in self.hosts)
        return {view.agent: view for view in views if view is not None}


_OFTEN = [
    Hosts.report_changes,
    Hosts.session_changes,
    Hosts.start_is_placed,
    Hosts.start_is_answered,
    Hosts.start_fails,
    Hosts.host_beats,
    Hosts.latency_is_measured,
    Hosts.host_fails,
    Hosts.time_passes,
]
_SELDOM = [
    Hosts.host_connects,
    Hosts.images_change,
    Hosts.snapshot_ends,
    Hosts.format_changes,
    Hosts.drain_is_ordered,
    Hosts.host_is_lost,
    Hosts.host_is_replaced,
    Hosts.session_is_forgotten,
    Hosts.host_is_doubted,
    Hosts.host_succeeds,
]
_CHANGES = [*_OFTEN, *_OFTEN, *_OFTEN, *_SELDOM]


@given(st.integers(0, 2**32))
@settings(max_examples=100)
def test_index_answers_as_a_scan_of_the_hosts(seed: int) -> None:
    hosts = Hosts(Random(seed))
    for _ in range(STEPS):
        hosts.change()
        hosts.check_images()
        for _ in range(5):
            hosts.check_choice()
