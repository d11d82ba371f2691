from dataclasses import replace
from random import Random
from typing import Any

import pytest

from controlplane.domain.hosts.contract import HostReport
from controlplane.domain.placement import placement
from controlplane.domain.placement.placement import HostView, Obstacle, Strategy, Wanted, obstacles
from controlplane.domain.placement.placement import ObstacleKind as Kind
from tests.support.agent.samples import a_spec
from tests.support.controlplane.ranking import rank_hosts
from tiltyard.contract import PortRequest, Protocol, Resources, shape_key

IMAGE = "r/game@sha256:0"
TCP = Protocol.TCP
UDP = Protocol.UDP
HOST = HostReport(
    agent_id="h",
    version="0",
    public_address="192.0.2.1",
    latency_addresses=(),
    capacity=Resources(10, 10, 1),
    reserved=Resources(),
    free_sessions=5,
    port_range_first=20000,
    port_range_last=30000,
    free_tcp_ports=5,
    free_udp_ports=5,
    images=frozenset({IMAGE}),
    tls=False,
    draining=False,
    engine_available=True,
    start_slots=2,
)
VIEW = HostView("h", HOST, report_age=1.0)
WANTED = Wanted(IMAGE, Resources(2, 2), (PortRequest(1, UDP),))
TCP_ONE = Wanted(IMAGE, Resources(2, 2), (PortRequest(1, TCP),))


def rank(
    views: list[HostView],
    wanted: Wanted = WANTED,
    strategy: Strategy = Strategy.PACKED,
    seed: int = 1,
) -> list[str]:
    best = rank_hosts(views, wanted, strategy=strategy, max_age=5.0, random=Random(seed))
    return [view.agent for view in best]


def on(**changes: Any) -> HostView:
    return replace(VIEW, host=replace(HOST, **changes))


def pinned(port: int, protocol: Protocol = UDP) -> PortRequest:
    return PortRequest(1, protocol, pinned=port)


def pin(port: int, protocol: Protocol = UDP) -> Wanted:
    return replace(WANTED, ports=(pinned(port, protocol),))


def with_gpus(count: int) -> Wanted:
    return replace(WANTED, reservation=Resources(1, 1, count))


def holds(*ports: tuple[Protocol, int]) -> HostView:
    return replace(VIEW, used_ports=lambda: frozenset(ports))


def keeps(count: int, **changes: Any) -> HostView:
    """Return a view of a host with this number of spare prepared containers."""
    return replace(VIEW, spare=lambda shape: count if shape == "s" else 0, **changes)


OF_SHAPE = replace(WANTED, shape="s")
TLS_PORT = replace(WANTED, ports=(PortRequest(1, TCP, tls=True),))
TLS_PORT_FIRST = replace(WANTED, ports=(PortRequest(1, TCP, tls=True), PortRequest(2, TCP)))
TABLE: list[tuple[HostView, Wanted, tuple[Obstacle, ...]]] = [
    (VIEW, WANTED, ()),
    (replace(VIEW, report_age=5.0), WANTED, ()),
    (replace(VIEW, report_age=5.1), WANTED, (Obstacle(Kind.UNRESPONSIVE, 5.0, 5.1),)),
    (on(draining=True), WANTED, (Obstacle(Kind.DRAINING),)),
    (on(engine_available=False), WANTED, (Obstacle(Kind.ENGINE_UNAVAILABLE),)),
    (on(disk_full=True), WANTED, (Obstacle(Kind.DISK_FULL),)),
    (on(images=frozenset()), WANTED, (Obstacle(Kind.IMAGE_MISSING),)),
    (on(free_sessions=0), WANTED, (Obstacle(Kind.SESSIONS, 1, 0, 0),)),
    (replace(VIEW, in_flight=4), WANTED, ()),
    (replace(VIEW, in_flight=5), WANTED, (Obstacle(Kind.SESSIONS, 1, 0, 5),)),
    (on(reserved=Resources(8, 8)), WANTED, ()),
    (on(reserved=Resources(9, 0)), WANTED, (Obstacle(Kind.CPU, 2, 1, 0),)),
    (on(reserved=Resources(0, 9)), WANTED, (Obstacle(Kind.RAM, 2, 1, 0),)),
    (replace(VIEW, held=Resources(9, 0)), WANTED, (Obstacle(Kind.CPU, 2, 1, 9),)),
    (replace(VIEW, held=Resources(0, 9)), WANTED, (Obstacle(Kind.RAM, 2, 1, 9),)),
    (replace(VIEW, starting=1), WANTED, ()),
    (replace(VIEW, starting=2), WANTED, (Obstacle(Kind.BUSY, 2, 2),)),
    (replace(VIEW, starting=1, starting_of_account=1), WANTED, (Obstacle(Kind.BUSY, 2, 1, 1),)),
    (keeps(1, starting=2), OF_SHAPE, ()),
    (keeps(1, starting=2), WANTED, (Obstacle(Kind.BUSY, 2, 2),)),
    (keeps(0, starting=2), OF_SHAPE, (Obstacle(Kind.BUSY, 2, 2),)),
    (keeps(1, in_flight=5), OF_SHAPE, (Obstacle(Kind.SESSIONS, 1, 0, 5),)),
    (VIEW, with_gpus(1), ()),
    (VIEW, with_gpus(2), (Obstacle(Kind.GPU, 2, 1, 0),)),
    (on(reserved=Resources(0, 0, 1)), with_gpus(1), (Obstacle(Kind.GPU, 1, 0, 0),)),
    (replace(VIEW, held=Resources(0, 0, 1)), with_gpus(1), (Obstacle(Kind.GPU, 1, 0, 1),)),
    (on(free_udp_ports=0), WANTED, (Obstacle(Kind.UDP_PORTS, 1, 0),)),
    (on(free_tcp_ports=0), WANTED, ()),
    (on(free_tcp_ports=0), TCP_ONE, (Obstacle(Kind.TCP_PORTS, 1, 0),)),
    (on(free_udp_ports=0), TCP_ONE, ()),
    (VIEW, pin(20000), ()),
    (VIEW, pin(30000), ()),
    (VIEW, pin(19999), (Obstacle(Kind.PORT_OUT_OF_RANGE, port=pinned(19999)),)),
    (VIEW, pin(30001), (Obstacle(Kind.PORT_OUT_OF_RANGE, port=pinned(30001)),)),
    (holds((UDP, 20000)), pin(20000), (Obstacle(Kind.PORT_TAKEN, port=pinned(20000)),)),
    (holds((UDP, 20000)), pin(20000, TCP), ()),
    (VIEW, TLS_PORT, (Obstacle(Kind.TLS_MISSING),)),
    (VIEW, TLS_PORT_FIRST, (Obstacle(Kind.TLS_MISSING),)),
    (on(tls=True), TLS_PORT, ()),
]


@pytest.mark.parametrize(("view", "wanted", "found"), TABLE)
def test_obstacles_of_a_host(view: HostView, wanted: Wanted, found: tuple[Obstacle, ...]) -> None:
    assert tuple(obstacles(view, wanted, 5.0)) == found
    assert rank([view], wanted) == ([] if found else ["h"])


def test_all_obstacles_of_a_host_are_reported_at_once() -> None:
    view = replace(
        on(
            draining=True,
            engine_available=False,
            disk_full=True,
            images=frozenset(),
            free_sessions=0,
            capacity=Resources(),
            free_tcp_ports=0,
            free_udp_ports=0,
        ),
        report_age=6.0,
        starting=2,
        used_ports=lambda: {(TCP, 20000)},
    )
    ports = (PortRequest(1, UDP, pinned=1), PortRequest(1, TCP, tls=True, pinned=20000))
    wanted = Wanted(IMAGE, Resources(1, 1, 1), ports)
    found = [obstacle.kind for obstacle in obstacles(view, wanted, 5.0)]
    others = {Kind.CONNECTING, Kind.NEWER, Kind.HOST_NETWORK, Kind.CAPABILITIES}
    assert found == [kind for kind in Kind if kind not in others]


def test_taken_ports_are_looked_up_only_for_a_pinned_port() -> None:
    lookups: list[str] = []

    def used_ports() -> frozenset[tuple[Protocol, int]]:
        lookups.append("")
        return frozenset()

    view = replace(VIEW, used_ports=used_ports)
    assert rank([view], WANTED) == ["h"]
    assert len(lookups) == 0
    assert rank([view], pin(20000)) == ["h"]
    assert len(lookups) == 1


def test_a_host_without_a_start_slot_still_has_room() -> None:
    assert placement.has_room(replace(VIEW, starting=2), WANTED, 5.0)


def test_packed_fills_the_fullest_and_spread_the_emptiest() -> None:
    views = [replace(on(reserved=Resources(used, 0)), agent=str(used)) for used in (3, 8, 0, 5)]
    assert rank(views) == ["8", "5", "3", "0"]
    assert rank(views, strategy=Strategy.SPREAD) == ["0", "3", "5", "8"]


def test_hosts_in_doubt_come_last() -> None:
    full = on(reserved=Resources(8, 0))
    views = [replace(full, agent="a", in_doubt=True), replace(VIEW, agent="b")]
    assert rank(views) == ["b", "a"]


def test_resources_held_by_starts_count_as_used() -> None:
    views = [replace(VIEW, agent="a"), replace(VIEW, agent="b", held=Resources(1, 1))]
    assert rank(views) == ["b", "a"]


def test_equally_full_hosts_are_sorted_by_latency() -> None:
    views = [replace(VIEW, agent=str(ms), latency=ms / 1000) for ms in (30.0, 10.0, 20.0)]
    views.append(replace(VIEW, agent="unknown"))
    assert rank(views) == ["10.0", "20.0", "30.0", "unknown"]


def test_equal_hosts_with_a_prepared_container_come_first() -> None:
    views = [replace(VIEW, agent="a"), replace(keeps(1), agent="b"), replace(VIEW, agent="c")]
    assert {rank(views, OF_SHAPE, seed=seed)[0] for seed in range(50)} == {"b"}


def test_a_prepared_container_of_another_shape_is_no_reason() -> None:
    views = [replace(VIEW, agent="a"), replace(keeps(1), agent="b")]
    assert {rank(views, WANTED, seed=seed)[0] for seed in range(50)} == {"a", "b"}


def test_more_prepared_containers_are_no_reason() -> None:
    views = [replace(keeps(1), agent="a"), replace(keeps(9), agent="b")]
    assert {rank(views, OF_SHAPE, seed=seed)[0] for seed in range(50)} == {"a", "b"}


@pytest.mark.parametrize(
    "kept",
    [
        replace(keeps(1), latency=0.002),
        replace(keeps(1), held=Resources(0, 0)),
        replace(keeps(1), held=Resources(9, 0), in_doubt=True),
    ],
    ids=["farther", "emptier", "in doubt"],
)
def test_a_prepared_container_does_not_outweigh_the_rank(kept: HostView) -> None:
    better = replace(VIEW, agent="better", held=Resources(1, 0), latency=0.001)
    assert rank([replace(kept, agent="kept"), better], OF_SHAPE)[0] == "better"


def test_a_start_wants_the_shape_of_its_spec() -> None:
    spec = a_spec()
    assert spec.shape is not None
    wanted = placement.wanted_for(spec)
    assert wanted.shape == shape_key(spec.shape)
    assert wanted.image == spec.image
    assert wanted.reservation == spec.reservation
    assert wanted.ports == spec.ports
    assert wanted.owner == ("acme", "game")


def test_a_start_with_a_pinned_port_wants_no_shape() -> None:
    assert placement.wanted_for(a_spec(ports=(pinned(20777),))).shape == ""


def test_equal_hosts_are_sorted_randomly() -> None:
    equals = [replace(VIEW, agent=name) for name in ("a", "b", "c")]
    assert {rank(equals, seed=seed)[0] for seed in range(50)} == {"a", "b", "c"}


def test_latencies_are_compared_in_whole_milliseconds() -> None:
    views = [replace(VIEW, agent="a", latency=0.0009), replace(VIEW, agent="b", latency=0.0012)]
    assert {rank(views, seed=seed)[0] for seed in range(50)} == {"a", "b"}
