"""What callers asked and were answered, and whether all of it can be true. Pure.

The form is Jepsen's: every operation is an `invoke`, followed by `ok`, `fail` (it has not happened
and never will) or `info` (unknown: it may have happened, or happen at any later time). A process
has one operation at a time, and after an `info` its number is not used again.
"""

import dataclasses
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Key = tuple[str, str]
"""An account and a caller's id of a session."""
Op = Literal["start", "stop", "read"]
Type = Literal["invoke", "ok", "fail", "info"]

ENDED = frozenset({"exited", "dead"})
NOBODY = 0
"""In place of a status: nobody was there to ask."""
_NEVER = frozenset({401, 403, 500})
"""No caller does what these are answers to."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the history; `time` is seconds since its beginning.

    `seen` is the status that a read found. `status` is None when there was no answer.
    """

    time: float
    process: int
    type: Type
    op: Op
    account: str
    id: str
    status: int | None = None
    seen: str = ""

    def to_json(self) -> str:
        """Write it as one line."""
        return json.dumps(dataclasses.asdict(self))


@dataclass(frozen=True, slots=True)
class End:
    """What is there once nothing is under way: what callers see, and what the hosts run.

    `running` has the keys of the containers that live, one for each.
    """

    known: Mapping[Key, str]
    """The status of every session that is listed, ended ones included."""
    running: Sequence[Key]


@dataclass(frozen=True, slots=True)
class _Operation:
    """An invocation and what came of it: they stand at `begin` and `end` in the history."""

    asked: Entry
    answered: Entry
    begin: int
    end: int

    @property
    def key(self) -> Key:
        return self.asked.account, self.asked.id

    def __str__(self) -> str:
        return f"{self.asked.op} at {self.asked.time:.3f} s"


def outcome(status: int | None) -> Type:
    """What an HTTP status says about the operation; None is that there was no answer."""
    if status is None or status >= 500:
        return "info"
    return "ok" if 200 <= status < 300 else "fail"


def tally(history: Iterable[Entry]) -> dict[str, Counter[str]]:
    """How often each kind of operation had each outcome."""
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    for entry in history:
        if entry.type != "invoke":
            counted[entry.op][entry.type] += 1
    return counted


def doubled(history: Sequence[Entry]) -> list[str]:
    """Ids that two starts were given: one that has ended stays taken while it is known."""
    started = Counter(o.key for o in _operations(history) if _is(o, "start", "ok"))
    return [f"{key}: {count} starts have this id" for key, count in started.items() if count > 1]


def lost(history: Sequence[Entry], end: End) -> list[str]:
    """What was answered with 2xx and later was not so, or was so and had not been asked for."""
    return [
        wrong
        for key, operations in _by_key(history).items()
        for wrong in (
            *_lost_sessions(key, operations, end),
            *_lost_stops(key, operations, end),
        )
    ]


def unseen(history: Sequence[Entry], end: End) -> list[str]:
    """What runs and cannot be seen, is listed and does not run, or was never to run."""
    wrong = [f"{key}: {n} containers" for key, n in Counter(end.running).items() if n > 1]
    live = {key for key, status in end.known.items() if status not in ENDED}
    wrong += [f"{key} runs and is not listed" for key in set(end.running) - live]
    wrong += [f"{key} is listed and does not run" for key in live - set(end.running)]
    possible = {o.key for o in _operations(history) if o.asked.op == "start" and _may_be(o)}
    return wrong + [f"{key} is there, and every start was refused" for key in live - possible]


def refused_wrongly(history: Sequence[Entry], most: Mapping[str, int]) -> list[str]:
    """Answers that nobody may get here, and starts refused for a quota that was not used up."""
    operations = list(_operations(history))
    wrong = [
        f"{o.key}: {o} is a {o.answered.status}" for o in operations if o.answered.status in _NEVER
    ]
    for start in operations:
        if start.answered.status == 402:
            account = start.asked.account
            used = len(_possibly_live(operations, start) - {start.key})
            if used < most[account]:
                wrong.append(f"{start.key}: {start} is a 402 with {used} of {most[account]}")
    return wrong


def _lost_sessions(key: Key, operations: Sequence[_Operation], end: End) -> Iterator[str]:
    started = next((o for o in operations if _is(o, "start", "ok")), None)
    if started is None:
        return
    stops = [o for o in operations if o.asked.op == "stop" and _may_be(o)]
    if key not in end.known:
        yield f"{key} was started and is not known in the end"
    elif end.known[key] in ENDED and not stops:
        yield f"{key} has ended, and nobody asked for it"
    for each in operations:
        if each.answered.status == 404 and each.begin > started.end:
            yield f"{key} was started and unknown to a later {each}"


def _lost_stops(key: Key, operations: Sequence[_Operation], end: End) -> Iterator[str]:
    stopped = next((o for o in operations if _is(o, "stop", "ok")), None)
    if stopped is None:
        return
    if key in end.running:
        yield f"{key} was stopped and runs"
    for status in (
        end.known.get(key, "exited"),
        *(o.answered.seen for o in _reads(operations) if o.begin > stopped.end),
    ):
        if status not in ENDED:
            yield f"{key} was stopped and is {status} later"


def _possibly_live(operations: Sequence[_Operation], at: _Operation) -> set[Key]:
    """Sessions of the account that may have lived at some time of an operation."""
    mine = [o for o in operations if o.asked.account == at.asked.account]
    begun = {
        o.key
        for o in mine
        if o.asked.op == "start" and o.begin < at.end and (_may_be(o) or o.end > at.begin)
    }
    return begun - {o.key for o in mine if _is(o, "stop", "ok") and o.end < at.begin}


def _reads(operations: Iterable[_Operation]) -> Iterator[_Operation]:
    return (o for o in operations if _is(o, "read", "ok"))


def _is(operation: _Operation, op: Op, type_: Type) -> bool:
    return operation.asked.op == op and operation.answered.type == type_


def _may_be(operation: _Operation) -> bool:
    return operation.answered.type != "fail"


def _by_key(history: Sequence[Entry]) -> dict[Key, list[_Operation]]:
    found: dict[Key, list[_Operation]] = defaultdict(list)
    for operation in _operations(history):
        found[operation.key].append(operation)
    return found


def _operations(history: Sequence[Entry]) -> Iterator[_Operation]:
    """Every operation, in the order of their ends; one that never ended is an `info` at the end.

    Raises:
        ValueError: It is no history: a process asks twice at one time, or is answered unasked.
    """
    asked: dict[int, tuple[int, Entry]] = {}
    for place, entry in enumerate(history):
        if (entry.type == "invoke") is (entry.process in asked):
            raise ValueError(f"process {entry.process} cannot {entry.type} at {place}")
        if entry.type == "invoke":
            asked[entry.process] = place, entry
        else:
            begin, invoked = asked.pop(entry.process)
            yield _Operation(invoked, entry, begin, place)
    for begin, invoked in asked.values():
        unknown = dataclasses.replace(invoked, type="info")
        yield _Operation(invoked, unknown, begin, len(history))
