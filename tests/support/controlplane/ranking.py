"""The specification of the choice of a host: looks at each, which `host_index` does not."""

from collections.abc import Iterable
from random import Random

from controlplane.domain.placement.placement import (
    HostView,
    Strategy,
    Wanted,
    can_begin,
    has_room,
    rank_start,
)


def rank_hosts(
    views: Iterable[HostView],
    wanted: Wanted,
    *,
    strategy: Strategy,
    max_age: float,
    random: Random,
) -> list[HostView]:
    """Order the hosts without obstacles by `rank_start`, then randomly."""
    fit = [v for v in views if can_begin(v, wanted) and has_room(v, wanted, max_age)]
    return sorted(fit, key=lambda v: (rank_start(v, wanted, strategy), random.random()))
