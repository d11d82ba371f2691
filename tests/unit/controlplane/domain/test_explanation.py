from dataclasses import replace

from controlplane.domain.explanation import describe, explain
from controlplane.domain.placement import HostView, Obstacle, Strategy
from controlplane.domain.placement import ObstacleKind as Kind
from tests.unit.controlplane.domain.test_placement import VIEW, WANTED, on
from tiltyard.contract import PortRequest, Protocol, Resources

HELD = "held by starts in progress"
PIN = PortRequest(1, Protocol.UDP, pinned=25000)


def test_every_obstacle_is_described_with_its_figures() -> None:
    assert all(describe(Obstacle(kind, port=PIN)) for kind in Kind)
    for obstacle, text in (
        (Obstacle(Kind.RAM, 2**30, -1, 2**28), f"MiB of memory: 1024 wanted, 0 free, 256 {HELD}"),
        (Obstacle(Kind.PORT_TAKEN, port=PIN), "25000/udp is taken"),
    ):
        assert describe(obstacle) == text


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
        ranks = [(c.agent, c.rank) for c in found]
        assert ranks == [*order, ("w", None), ("x", None), ("y", None)]
        last = (Obstacle(Kind.CONNECTING), Obstacle(Kind.BUSY, 2, 2), Obstacle(Kind.NEWER))
        assert [c.obstacles for c in found[4:]] == [(each,) for each in last]
