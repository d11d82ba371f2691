"""Search for neighbouring ports. Pure."""

import sys
from collections.abc import Callable, Collection, Mapping, Sequence

from tiltyard.contract import PortRequest, Protocol

_NEVER = sys.maxsize


def best_run(
    requests: Sequence[PortRequest],
    ranks: Mapping[Protocol, Mapping[int, int]],
    ports: range,
    unusable: Callable[[PortRequest], Collection[int]] = lambda _: (),
) -> int | None:
    """Return the first port of the best run of neighbours, one for each request; None without one.

    A port without a rank is in no run, nor is one that is `unusable` for its request. Of all runs,
    the best one is that whose highest rank is lowest, then the first in the range.
    """
    ranked = {
        protocol: [ranks[protocol].get(port, _NEVER) for port in ports]
        for protocol in {request.protocol for request in requests}
    }
    columns = []  # Each begins at the port that its request has in the first run of the range
    for place, request in enumerate(requests):
        column = ranked[request.protocol][place:]
        for port in unusable(request):
            if port in ports[place:]:
                column[port - ports.start - place] = _NEVER
        columns.append(column)
    highest = [max(run) for run in zip(*columns, strict=False)]
    best = min(range(len(highest)), key=highest.__getitem__, default=None)
    if best is None or highest[best] == _NEVER:
        return None
    return ports.start + best
