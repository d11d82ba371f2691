"""Placement explained: the order that is told, and the words for what is in the way."""

from dataclasses import replace

import pytest

from controlplane.domain.explanation import describe, explain
from controlplane.domain.placement import HostView, Obstacle, Strategy
from controlplane.domain.placement import ObstacleKind as Kind
from tests.unit.controlplane.domain.test_placement import VIEW, WANTED, on
from tiltyard.contract import PortRequest, Protocol, Resources

PIN = PortRequest(1, Protocol.UDP, pinned=25000)
TEXTS = {
    Obstacle(Kind.CONNECTING): "has not reported what runs there yet",
    Obstacle(Kind.NEWER): "speaks a newer format than this control plane reads",
    Obstacle(Kind.HOST_NETWORK): "the node pool does not allow the host's network",
    Obstacle(Kind.SILENT, 5.0, 7.25): "no report for 7.2 s, 5 s are allowed",
    Obstacle(Kind.ENGINE_UNAVAILABLE): "its Docker Engine is away",
    Obstacle(Kind.DRAINING): "is drained: it takes no new sessions",
    Obstacle(Kind.DISK_FULL): "a disk that sessions need lacks room",
    Obstacle(Kind.IMAGE_MISSING): "has not pulled the image",
    Obstacle(Kind.SESSIONS, 1, -1, 3): "sessions: 1 wanted, 0 free, 3 held by starts under way",
    Obstacle(Kind.CPU, 2 * 10**9, 5 * 10**8): "cores: 2 wanted, 0.5 free",
    Obstacle(Kind.RAM, 2**30, 2**29, 2**28): (
        "MiB of memory: 1024 wanted, 512 free, 256 held by starts under way"
    ),
    Obstacle(Kind.GPU, 1): "GPUs: 1 wanted, 0 free",
    Obstacle(Kind.TLS_MISSING): "has no certificate for a TLS port",
    Obstacle(Kind.TCP_PORTS, 2, 1): "TCP ports: 2 wanted, 1 free",
    Obstacle(Kind.UDP_PORTS, 2): "UDP ports: 2 wanted, 0 free",
    Obstacle(Kind.PORT_OUT_OF_RANGE, port=PIN): "25000/udp is outside its port range",
    Obstacle(Kind.PORT_TAKEN, port=PIN): "25000/udp is taken",
    Obstacle(Kind.BUSY, 2, 3): "3 starts are under way, 2 at a time: the next one waits",
}


@pytest.mark.parametrize("obstacle", TEXTS, ids=lambda obstacle: obstacle.kind)
def test_every_obstacle_is_told_with_its_figures(obstacle: Obstacle) -> None:
    assert describe(obstacle) == TEXTS[obstacle]


def test_there_are_words_for_every_kind() -> None:
    assert [obstacle.kind for obstacle in TEXTS] == list(Kind)


def test_hosts_come_by_rank_and_equals_share_one() -> None:
    shown: dict[str, HostView | Kind] = {
        name: replace(on(reserved=Resources(used, 0)), agent=name)
        for name, used in (("a", 1), ("b", 3), ("c", 3), ("d", 0))
    }
    shown |= {"x": replace(VIEW, agent="x", starting=2), "w": Kind.CONNECTING, "y": Kind.NEWER}
    for strategy, order in (
        (Strategy.PACKED, [("b", 1), ("c", 1), ("a", 3), ("d", 4)]),
        (Strategy.SPREAD, [("d", 1), ("a", 2), ("b", 3), ("c", 3)]),
    ):
        found = explain(shown, WANTED, strategy=strategy, max_silence=5.0)
        assert found.strategy is strategy
        told = [(c.agent, c.rank) for c in found.candidates]
        assert told == [*order, ("w", None), ("x", None), ("y", None)]
        assert [c.obstacles for c in found.candidates[4:]] == [
            (Obstacle(Kind.CONNECTING),),
            (Obstacle(Kind.BUSY, 2, 2),),
            (Obstacle(Kind.NEWER),),
        ]


def test_the_nearer_of_two_that_are_equally_full_has_the_better_rank() -> None:
    shown = {name: replace(VIEW, agent=name, latency_ms=ms) for name, ms in (("a", 9), ("b", 2))}
    found = explain({**shown}, WANTED, strategy=Strategy.PACKED, max_silence=5.0)
    assert [(c.agent, c.rank) for c in found.candidates] == [("b", 1), ("a", 2)]
