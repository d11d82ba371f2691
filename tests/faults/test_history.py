"""Whatever a history forbids is found by looking."""

import dataclasses
import json
from collections import Counter
from typing import Any

import pytest

from tests.faults.history import (
    End,
    Entry,
    Key,
    Op,
    Type,
    doubled,
    lost,
    outcome,
    refused_wrongly,
    tally,
    unseen,
)

KEY = ("alice", "x")
NOTHING = End({}, [])
RUNS = End({KEY: "running"}, [KEY])
HAS_ENDED = End({KEY: "exited"}, [])


def did(op: Op, type_: Type = "ok", *, key: Key = KEY, **found: Any) -> list[Entry]:
    """An operation that nothing else was done beside."""
    asked = Entry(0.0, 0, "invoke", op, *key)
    return [asked, dataclasses.replace(asked, type=type_, **found)]


def read(seen: str = "running") -> list[Entry]:
    return did("read", status=200, seen=seen)


def wrong(history: list[Entry], end: End, most: int = 1) -> list[str]:
    """Everything that is wrong with what account alice, which may have `most`, was answered."""
    return [
        *doubled(history),
        *lost(history, end),
        *unseen(history, end),
        *refused_wrongly(history, {"alice": most}),
    ]


OTHER = ("alice", "y")


@pytest.mark.parametrize(
    ("history", "end"),
    [
        ([*did("start"), *read()], RUNS),
        ([*did("start", "info"), *did("start", "fail", status=409)], RUNS),
        (did("start", "info"), NOTHING),
        ([*did("start", "fail", status=420), *did("start")], RUNS),
        ([*did("start"), *did("stop"), *read("exited")], HAS_ENDED),
        ([*did("start"), *did("stop", "info"), *read("running")], HAS_ENDED),
        ([*did("stop", "fail", status=404), *did("start")], RUNS),
        ([*did("start"), *did("start", "fail", key=OTHER, status=402)], RUNS),
        ([*did("start", "info"), *did("start", "fail", key=OTHER, status=402)], NOTHING),
        (did("start")[:1], RUNS),
    ],
)
def test_what_can_be_is_found_to_be(history: list[Entry], end: End) -> None:
    assert wrong(history, end) == []


@pytest.mark.parametrize(
    ("found", "history", "end"),
    [
        ("2 starts have this id", [*did("start"), *did("stop"), *did("start")], HAS_ENDED),
        ("not known in the end", did("start"), NOTHING),
        (
            "nobody asked",
            [*did("stop", "fail", status=404), *did("start"), *did("stop", "fail", status=409)],
            HAS_ENDED,
        ),
        ("unknown to a later stop", [*did("start"), *did("stop", "fail", status=404)], RUNS),
        ("was stopped and runs", [*did("start"), *did("stop")], RUNS),
        ("is running later", [*did("start"), *did("stop"), *read()], HAS_ENDED),
        ("2 containers", did("start"), End({KEY: "running"}, [KEY, KEY])),
        ("runs and is not listed", did("start", "info"), End({}, [KEY])),
        ("does not run", did("start"), End({KEY: "running"}, [])),
        ("every start was refused", did("start", "fail", status=420), RUNS),
        ("is a 402 with 0 of 1", did("start", "fail", status=402), NOTHING),
        (
            "is a 402 with 0 of 1",
            [*did("start"), *did("stop"), *did("start", "fail", key=OTHER, status=402)],
            HAS_ENDED,
        ),
        ("is a 500", [*did("start"), *did("stop", "info", status=500)], RUNS),
    ],
)
def test_what_cannot_be_is_found(found: str, history: list[Entry], end: End) -> None:
    assert any(found in one for one in wrong(history, end))


def test_operations_at_one_time_may_have_happened_in_either_order() -> None:
    reading = [dataclasses.replace(entry, process=1) for entry in read()]
    history = [*did("start"), reading[0], *did("stop"), reading[1]]
    assert wrong(history, HAS_ENDED) == []


@pytest.mark.parametrize("history", [did("start")[:1] * 2, did("start")[1:]])
def test_what_is_no_history_is_not_evaluated(history: list[Entry]) -> None:
    with pytest.raises(ValueError, match="process 0 cannot"):
        doubled(history)


@pytest.mark.parametrize(
    ("status", "known"), [(None, "info"), (0, "fail"), (201, "ok"), (420, "fail"), (503, "info")]
)
def test_a_status_says_what_is_known_of_an_operation(status: int | None, known: str) -> None:
    assert outcome(status) == known


def test_a_history_is_counted_and_written_a_line_for_each_entry() -> None:
    history = [*did("start"), *did("start", "info"), *read("running")]
    assert tally(history) == {"start": Counter(ok=1, info=1), "read": Counter(ok=1)}
    [asked, *_, found] = [json.loads(entry.to_json()) for entry in history]
    assert (asked["type"], asked["op"], asked["account"], asked["id"]) == ("invoke", "start", *KEY)
    assert (found["type"], found["seen"]) == ("ok", "running")
