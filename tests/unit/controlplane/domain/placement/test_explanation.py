from dataclasses import replace

import pytest

from controlplane.domain.placement.explanation import describe, explain
from controlplane.domain.placement.placement import HostView, Obstacle, Strategy
from controlplane.domain.placement.placement import ObstacleKind as Kind
from tests.unit.controlplane.domain.placement.test_placement import (
    OF_SHAPE,
    VIEW,
    WANTED,
    keeps,
    on,
)
from tiltyard.contract import PortRequest, Protocol, Resources

HELD = "held by starts in progress"
PIN = PortRequest(1, Protocol.UDP, pinned=25000)


TEXTS = {
    Obstacle(Kind.CONNECTING): "has not reported what runs there yet",
    Obstacle(Kind.NEWER): "uses a newer format than this control plane reads",
    Obstacle(Kind.HOST_NETWORK): "the node pool does not allow the host's network",
    Obstacle(Kind.CAPABILITIES): "the node pool does not allow all of the capabilities",
    Obstacle(Kind.UNRESPONSIVE, 5.0, 7.25): "no report for 7.2 s, 5 s are allowed",
    Obstacle(Kind.ENGINE_UNAVAILABLE): "its Docker Engine does not answer",
    Obstacle(Kind.DRAINING): "is drained: it takes no new sessions",
    Obstacle(Kind.DISK_FULL): "too little disk space",
    Obstacle(Kind.IMAGE_MISSING): "has not pulled the image",
    Obstacle(Kind.SESSIONS, 1, -1, 3): f"sessions: 1 wanted, 0 free, 3 {HELD}",
    Obstacle(Kind.CPU, 2 * 10**9, 5 * 10**8): "cores: 2 wanted, 0.5 free",
    Obstacle(Kind.RAM, 2**30, -1, 2**28): f"MiB of memory: 1024 wanted, 0 free, 256 {HELD}",
    Obstacle(Kind.GPU, 1): "GPUs: 1 wanted, 0 free",
    Obstacle(Kind.TLS_MISSING): "has no certificate for a TLS port",
    Obstacle(Kind.TCP_PORTS, 2, 1): "TCP ports: 2 wanted, 1 free",
    Obstacle(Kind.UDP_PORTS, 2): "UDP ports: 2 wanted, 0 free",
    Obstacle(Kind.PORT_OUT_OF_RANGE, port=PIN): "25000/udp is outside its port range",
    Obstacle(Kind.PORT_TAKEN, port=PIN): "25000/udp is taken",
    Obstacle(Kind.BUSY, 9, 7, 5): (
        "7 starts are in progress of at most 9, 5 of this account: the next one waits"
    ),
}


@pytest.mark.parametrize("obstacle", TEXTS, ids=lambda obstacle: obstacle.kind)
def test_obstacle_is_described_with_its_figures(obstacle: Obstacle) -> None:
    assert describe(obstacle) == TEXTS[obstacle]


def test_every_kind_of_obstacle_has_a_text() -> None:
    assert [obstacle.kind for obstacle in TEXTS] == list(Kind)


def test_hosts_are_sorted_by_rank_and_equals_share_one() -> None:
    shown: dict[str, HostView | Kind] = {
        name: replace(on(reserved=Resources(used, 0)), agent=name)
        for name, used in (("a", 1), ("b", 3), ("c", 3), ("d", 0))
    }
    shown |= {"x": replace(VIEW, agent="x", starting=2), "w": Kind.CONNECTING, "y": Kind.NEWER}
    packed = [("b", 1), ("c", 1), ("a", 3), ("d", 4)]
    spread = [("d", 1), ("a", 2), ("b", 3), ("c", 3)]
    for strategy, order in ((Strategy.PACKED, packed), (Strategy.SPREAD, spread)):
        found = explain(shown, WANTED, strategy=strategy, max_age=5.0)
        ranks = [(candidate.agent, candidate.rank) for candidate in found]
        assert ranks == [*order, ("w", None), ("x", None), ("y", None)]
        assert [candidate.obstacles for candidate in found[4:]] == [
            (Obstacle(Kind.CONNECTING),),
            (Obstacle(Kind.BUSY, 2, 2),),
            (Obstacle(Kind.NEWER),),
        ]


def test_explained_rank_is_better_for_the_nearer_of_equally_full_hosts() -> None:
    far = replace(VIEW, agent="a", latency=0.009)
    near = replace(VIEW, agent="b", latency=0.002)
    shown: dict[str, HostView | Kind] = {"a": far, "b": near}
    found = explain(shown, WANTED, strategy=Strategy.PACKED, max_age=5.0)
    assert [(candidate.agent, candidate.rank) for candidate in found] == [("b", 1), ("a", 2)]


def test_explained_rank_is_better_for_a_host_with_a_prepared_container() -> None:
    shown: dict[str, HostView | Kind] = {
        "a": replace(VIEW, agent="a"),
        "b": replace(keeps(2), agent="b"),
        "c": Kind.CONNECTING,
    }
    found = explain(shown, OF_SHAPE, strategy=Strategy.PACKED, max_age=5.0)
    ranks = [(candidate.agent, candidate.rank, candidate.spare) for candidate in found]
    assert ranks == [("b", 1, 2), ("a", 2, 0), ("c", None, None)]
