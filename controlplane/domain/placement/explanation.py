"""Explanation of placement: ranked hosts, and why not others. Pure."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace

from controlplane.domain.placement.placement import (
    HostView,
    Obstacle,
    ObstacleKind,
    Strategy,
    Wanted,
    obstacles,
    rank_start,
)
from tiltyard.contract import MEBI, NANO


@dataclass(frozen=True, slots=True)
class Candidate:
    """A host of the region and node pool, as placement sees it now.

    `rank` begins at 1, None if there are `obstacles`; hosts of equal rank are chosen randomly.
    `view` is None if too little is known of the host. `spare`: prepared containers for the session
    that no start in flight counts on.
    """

    agent: str
    rank: int | None
    obstacles: tuple[Obstacle, ...]
    view: HostView | None
    spare: int | None = None


def explain(
    shown: Mapping[str, HostView | ObstacleKind],
    wanted: Wanted,
    *,
    strategy: Strategy,
    max_age: float,
) -> tuple[Candidate, ...]:
    """Return the hosts of a region and node pool by rank, then those that do not qualify.

    `shown` is by agent a view or an obstacle.
    """
    found = []
    for name, view in sorted(shown.items()):
        if isinstance(view, ObstacleKind):
            found.append(Candidate(name, None, (Obstacle(view),), None))
        else:
            own = tuple(obstacles(view, wanted, max_age))
            found.append(Candidate(name, None, own, view, view.spare(wanted.shape)))
    fit = [(rank_start(c.view, wanted, strategy), c) for c in found if c.view and not c.obstacles]
    keys = sorted(key for key, _ in fit)
    ranked = [
        replace(c, rank=bisect_left(keys, key) + 1)
        for key, c in sorted(fit, key=lambda pair: pair[0])
    ]
    return (*ranked, *(c for c in found if c.obstacles))


def describe(obstacle: Obstacle) -> str:
    """Describe an obstacle with its figures."""
    if obstacle.kind not in _SHORT_OF:
        return _TEXTS[obstacle.kind].format_map(obstacle._asdict())
    unit, scale = _SHORT_OF[obstacle.kind]
    wanted = obstacle.wanted / scale
    free = max(obstacle.free, 0) / scale
    text = f"{unit}: {wanted:g} wanted, {free:g} free"
    if not obstacle.held:
        return text
    return f"{text}, {obstacle.held / scale:g} held by starts in progress"


_SHORT_OF = {
    ObstacleKind.SESSIONS: ("sessions", 1),
    ObstacleKind.CPU: ("cores", NANO),
    ObstacleKind.RAM: ("MiB of memory", MEBI),
    ObstacleKind.GPU: ("GPUs", 1),
    ObstacleKind.TCP_PORTS: ("TCP ports", 1),
    ObstacleKind.UDP_PORTS: ("UDP ports", 1),
}
_TEXTS = {
    ObstacleKind.CONNECTING: "has not reported what runs there yet",
    ObstacleKind.NEWER: "uses a newer format than this control plane reads",
    ObstacleKind.HOST_NETWORK: "the node pool does not allow the host's network",
    ObstacleKind.CAPABILITIES: "the node pool does not allow all of the capabilities",
    ObstacleKind.UNRESPONSIVE: "no report for {free:.1f} s, {wanted:g} s are allowed",
    ObstacleKind.ENGINE_UNAVAILABLE: "its Docker Engine does not answer",
    ObstacleKind.DRAINING: "is drained: it takes no new sessions",
    ObstacleKind.DISK_FULL: "too little disk space",
    ObstacleKind.IMAGE_MISSING: "has not pulled the image",
    ObstacleKind.TLS_MISSING: "has no certificate for a TLS port",
    ObstacleKind.PORT_OUT_OF_RANGE: "{port.pinned}/{port.protocol} is outside its port range",
    ObstacleKind.PORT_TAKEN: "{port.pinned}/{port.protocol} is taken",
    ObstacleKind.BUSY: "{free:g} starts are in progress of at most {wanted:g}, {held:g} of this"
    " account: the next one waits",
}
