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
NOTHING = End({}, {}, [])
RUNS = End({KEY: "running"}, {}, [KEY])
HAS_ENDED = End({KEY: "exited"}, {}, [])


def did(op: Op, type_: Type = "ok", *, key: Key = KEY, **told: Any) -> list[Entry]:
    """An operation that nothing else was done beside."""
    player = told.pop("player", "")
    asked = Entry(0.0, 0, "invoke", op, *key, player=player)
    return [asked, dataclasses.replace(asked, type=type_, **told)]


def read(seen: str = "running", *players: str) -> list[Entry]:
    return did("read", status=200, seen=seen, players=players)


def wrong(history: list[Entry], end: End, most: int = 1) -> list[str]:
    """Everything that is wrong with what account alice, who may have `most`, was told."""
    return [
        *doubled(history),
        *lost(history, end),
        *unseen(history, end),
        *refused_wrongly(history, {"alice": most}),
    ]


JOINED = [*did("start"), *did("join", player="p")]
LEFT = [*JOINED, *did("leave", player="p")]
WITH_P = dataclasses.replace(RUNS, players={KEY: ["p"]})
WITHOUT_P = dataclasses.replace(RUNS, players={KEY: []})
OTHER = ("alice", "y")


@pytest.mark.parametrize(
    ("history", "end"),
    [
        ([], NOTHING),
        ([*did("start"), *read()], RUNS),
        ([*did("start", "info"), *did("start", "fail", status=409)], RUNS),
        (did("start", "info"), NOTHING),
        ([*did("start", "fail", status=420), *did("start")], RUNS),
        ([*did("start"), *did("stop"), *read("exited")], HAS_ENDED),
        ([*did("start"), *did("stop", "info"), *read("running")], HAS_ENDED),
        ([*did("start"), *did("stop", "info"), *did("join", "fail", status=404)], HAS_ENDED),
        ([*did("stop", "fail", status=404), *did("start")], RUNS),
        ([*JOINED, *read("running", "p")], WITH_P),
        ([*LEFT, *read()], WITHOUT_P),
        ([*did("start"), *did("join", "info", player="p")], WITH_P),
        ([*did("start"), *did("join", "info", player="p")], WITHOUT_P),
        ([*JOINED, *did("leave", "info", player="p")], WITHOUT_P),
        ([*JOINED, *did("leave", "info", player="p")], WITH_P),
        # What is unknown may happen at any later time.
        (
            [
                *did("start"),
                *did("join", "info", player="p"),
                *did("leave", player="p"),
                *read("running", "p"),
            ],
            WITH_P,
        ),
        ([*did("start"), *did("start", "fail", key=OTHER, status=402)], RUNS),
        ([*did("start", "info"), *did("start", "fail", key=OTHER, status=402)], NOTHING),
        (did("start")[:1], RUNS),
    ],
)
def test_what_can_be_is_found_to_be(history: list[Entry], end: End) -> None:
    assert wrong(history, end) == []


@pytest.mark.parametrize(
    ("told", "history", "end"),
    [
        ("2 starts have this id", [*did("start"), *did("start")], RUNS),
        ("2 starts have", [*did("start"), *did("stop"), *did("start")], HAS_ENDED),
        ("not known in the end", did("start"), NOTHING),
        ("nobody asked", did("start"), HAS_ENDED),
        (
            "nobody asked",
            [*did("stop", "fail", status=404), *did("start"), *did("stop", "fail", status=409)],
            HAS_ENDED,
        ),
        ("unknown to a later read", [*did("start"), *did("read", "fail", status=404)], RUNS),
        ("unknown to a later stop", [*did("start"), *did("stop", "fail", status=404)], RUNS),
        ("unknown to a later join", [*did("start"), *did("join", "fail", status=404)], RUNS),
        ("was stopped and runs", [*did("start"), *did("stop")], RUNS),
        ("is running later", [*did("start"), *did("stop"), *read()], HAS_ENDED),
        ("p had joined and is not listed", [*JOINED, *read()], WITH_P),
        ("p had joined and is not listed", JOINED, WITHOUT_P),
        ("p is listed, and cannot be", [*LEFT, *read("running", "p")], WITHOUT_P),
        ("p is listed, and cannot be", LEFT, WITH_P),
        ("p is listed, and cannot be", did("start"), WITH_P),
        (
            "p is listed, and cannot be",
            [*did("start"), *did("join", "fail", player="p", status=422)],
            WITH_P,
        ),
        ("p is listed 2 times", [*JOINED, *read("running", "p", "p")], WITH_P),
        ("2 containers", did("start"), dataclasses.replace(RUNS, running=[KEY, KEY])),
        ("runs and is not told of", did("start", "info"), End({}, {}, [KEY])),
        (
            "runs and is not told of",
            [*did("start"), *did("stop", "info")],
            dataclasses.replace(HAS_ENDED, running=[KEY]),
        ),
        ("does not run", did("start"), dataclasses.replace(RUNS, running=[])),
        ("every start was refused", did("start", "fail", status=420), RUNS),
        ("is a 402 with 0 of 1", did("start", "fail", status=402), NOTHING),
        (
            "is a 402 with 0 of 1",
            [*did("start"), *did("stop"), *did("start", "fail", key=OTHER, status=402)],
            HAS_ENDED,
        ),
        ("is a 401", [*did("start"), *did("read", "fail", status=401)], RUNS),
        ("is a 500", [*did("start"), *did("join", "info", status=500)], RUNS),
    ],
)
def test_what_cannot_be_is_told(told: str, history: list[Entry], end: End) -> None:
    found = wrong(history, end)
    assert any(told in one for one in found), found


def test_operations_at_one_time_may_have_happened_in_either_order() -> None:
    stop, join = (did("stop"), did("join", "fail", status=404))
    beside = [dataclasses.replace(entry, process=1) for entry in join]
    history = [*did("start"), beside[0], stop[0], stop[1], beside[1]]
    assert wrong(history, HAS_ENDED) == []
    reading = [dataclasses.replace(entry, process=1) for entry in read()]
    assert wrong([*did("start"), reading[0], *stop, reading[1]], HAS_ENDED) == []


@pytest.mark.parametrize("history", [did("start")[:1] * 2, did("start")[1:]])
def test_what_is_no_history_is_not_judged(history: list[Entry]) -> None:
    with pytest.raises(ValueError, match="process 0 cannot"):
        doubled(history)


def test_a_status_says_what_is_known_of_an_operation() -> None:
    told = {status: outcome(status) for status in (None, 0, 201, 204, 402, 404, 420, 503)}
    assert told == {
        None: "info",
        0: "fail",
        201: "ok",
        204: "ok",
        402: "fail",
        404: "fail",
        420: "fail",
        503: "info",
    }


def test_a_history_is_counted_and_written_a_line_for_each_entry() -> None:
    history = [*did("start"), *did("start", "info"), *read("running", "p")]
    assert tally(history) == {"start": Counter(ok=1, info=1), "read": Counter(ok=1)}
    [asked, *_, found] = [json.loads(entry.to_json()) for entry in history]
    assert (asked["type"], asked["op"], asked["account"], asked["id"]) == ("invoke", "start", *KEY)
    assert (found["type"], found["seen"], found["players"]) == ("ok", "running", ["p"])
