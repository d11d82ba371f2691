"""Starts by their ids: requested ones from the beginning, others with their rows."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from controlplane.domain.errors import ConflictError, StoppedDuringStartError
from controlplane.domain.sessions.start_timing import StartTiming
from controlplane.sessions.start_request import StartRequest
from controlplane.sessions.under_way import Start, StartsUnderWay


def start(session_id: str = "", account: str = "alice") -> Start:
    """Return a start whose row is not committed yet."""
    row: Any = SimpleNamespace(account=account, id=session_id, exists=False)
    return Start(StartRequest("local", "game"), 8.0, StartTiming(lambda: 0.0), row)


def commit(starts: StartsUnderWay, made: Start, session_id: str) -> None:
    row = cast("Any", made.row)
    row.id = session_id
    row.exists = True
    starts.note_row(made)


def test_requested_id_is_known_before_the_row() -> None:
    starts = StartsUnderWay()
    made = start("s")
    starts.add(made)
    assert starts.get("alice", "s") is made
    assert not made.decided.is_set()
    assert starts.get("bob", "s") is None


def test_second_start_of_an_id_is_refused_and_ends_nothing() -> None:
    starts = StartsUnderWay()
    first = start("s")
    second = start("s")
    starts.add(first)
    with pytest.raises(ConflictError):
        starts.add(second)
    starts.end(second)
    assert starts.get("alice", "s") is first


def test_starts_without_an_id_are_found_by_that_of_their_row() -> None:
    starts = StartsUnderWay()
    made = start()
    starts.add(made)
    assert starts.get("alice", "") is None
    commit(starts, made, "standby")
    assert starts.get("alice", "standby") is made
    assert made.decided.is_set()


def test_next_row_of_a_start_takes_the_place_of_the_one_before() -> None:
    starts = StartsUnderWay()
    made = start()
    commit(starts, made, "standby")
    commit(starts, made, "other")
    assert starts.get("alice", "standby") is None
    assert starts.get("alice", "other") is made


def test_ended_start_is_forgotten_and_wakes_who_waits() -> None:
    starts = StartsUnderWay()
    made = start("s")
    starts.add(made)
    starts.end(made)
    assert starts.get("alice", "s") is None
    assert made.decided.is_set()
    assert made.ended.is_set()
    starts.add(start("s"))


def test_start_that_was_called_off_stops_at_its_next_step() -> None:
    made = start("s")
    made.check()
    made.call_off()
    with pytest.raises(StoppedDuringStartError):
        made.check()
    assert not made.is_marked
