"""The ids of a call are divided into events that stay small."""

import json

from controlplane.domain.events.event import Retention
from controlplane.domain.events.kinds import kinds_kept
from controlplane.domain.events.players import (
    MOST_ID_BYTES,
    MOST_IDS,
    PlayersJoined,
    PlayersLeft,
    batches,
)
from controlplane.storage.engine.event_schema import EVENT_TABLES, OF_PLAYERS


def test_ids_are_divided_by_number_in_order() -> None:
    ids = [str(number) for number in range(2 * MOST_IDS + 1)]
    found = list(batches(ids))
    assert [len(batch) for batch in found] == [MOST_IDS, MOST_IDS, 1]
    assert [player for batch in found for player in batch] == ids


def test_ids_are_divided_by_bytes() -> None:
    ids = [f"{number:x<256}" for number in range(40)]
    found = list(batches(ids))
    assert [player for batch in found for player in batch] == ids
    sizes = [len(json.dumps(batch)) for batch in found]
    assert max(sizes) <= MOST_ID_BYTES
    assert min(sizes[:-1]) > MOST_ID_BYTES - 300


def test_longest_id_is_an_event_of_its_own() -> None:
    longest = "\U0001f3ae" * 256
    found = list(batches([longest, longest]))
    assert found == [[longest], [longest]]
    assert len(json.dumps(found[0])) <= MOST_ID_BYTES


def test_no_ids_are_no_event() -> None:
    assert list(batches([])) == []


def test_index_and_class_of_retention_have_the_kinds_of_players() -> None:
    kinds = (PlayersJoined.kind, PlayersLeft.kind)
    assert kinds_kept(Retention.PLAYERS) == kinds
    assert f"kind IN {kinds}" == OF_PLAYERS
    assert f"WHERE {OF_PLAYERS};" in EVENT_TABLES
