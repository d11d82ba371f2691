"""Events of players. Their ids are personal data: see `Retention.PLAYERS`."""

import json
from collections.abc import Iterable, Iterator, Sequence

from controlplane.domain.events.event import Retention
from controlplane.domain.events.sessions import SessionEvent
from tiltyard.records import record

MOST_IDS = 100  # Of one event
MOST_ID_BYTES = 4096  # Of the ids of one event as JSON; an id of 256 characters always fits


@record(frozen=True, slots=True, kw_only=True)
class PlayersEvent(SessionEvent):
    """An event of players of a session."""

    retention = Retention.PLAYERS

    players: Sequence[str]


@record(frozen=True, slots=True, kw_only=True)
class PlayersJoined(PlayersEvent):
    """Players have joined a session that they were not in. `players` has at most 100 ids."""

    kind = "players.joined"


@record(frozen=True, slots=True, kw_only=True)
class PlayersLeft(PlayersEvent):
    """Players have left a session that they were in. `players` has at most 100 ids."""

    kind = "players.left"


def batches(players: Iterable[str]) -> Iterator[list[str]]:
    """Divide the ids of a call into those of one event each, in their order."""
    batch: list[str] = []
    taken = 0
    for player in players:
        size = len(json.dumps(player)) + len(", ")
        if batch and (len(batch) == MOST_IDS or taken + size > MOST_ID_BYTES):
            yield batch
            batch = []
            taken = 0
        batch.append(player)
        taken += size
    if batch:
        yield batch
