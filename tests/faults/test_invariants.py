"""Each violation of an invariant is found."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from agent.domain.containers.engine import LABEL_PREPARED, LABEL_SESSION
from agent.domain.sessions.session import Claim, Deadline, Port, Process, Session, Standby
from tests.faults.game_logs import lines_lost, log_violations
from tests.faults.invariants import (
    Observation,
    SeenContainer,
    beyond_quota,
    doubled,
    lateness,
    leftovers,
    session_of,
    violations,
    without_forgotten,
)
from tests.support.agent.samples import a_session, a_spec
from tiltyard.contract import EndReason, Protocol, State

NOW = 1_800_000_000.0
PROCESS = Process(100, 7)
PORTS = (Port(7777, Protocol.UDP, 20000), Port(7778, Protocol.TCP, 20000))
ADDRESSES = frozenset({("udp", 20000), ("tcp", 20000)})
RUNNING = a_session(
    state=State.RUNNING, ports=PORTS, process=PROCESS, start_time=NOW - 100, create_time=NOW - 101
)
CONTAINER = SeenContainer("one", RUNNING.internal_id, running=True, ports=ADDRESSES)
GOOD = Observation(
    now=NOW,
    sessions=[RUNNING],
    containers=[CONTAINER],
    living=frozenset({PROCESS}),
    reported={RUNNING.internal_id: State.RUNNING},
    ports=200,
    free_ports=198,
    rules=ADDRESSES,
)
ENDED = dataclasses.replace(RUNNING, state=State.EXITED, end_time=NOW - 50)
AFTER = dataclasses.replace(
    GOOD,
    sessions=[ENDED],
    containers=[dataclasses.replace(CONTAINER, running=False, ports=frozenset())],
    living=frozenset(),
    reported={ENDED.internal_id: State.EXITED},
    free_ports=200,
    rules=frozenset(),
)


def _session(**changes: Any) -> Callable[[Observation], Observation]:
    def change(seen: Observation) -> Observation:
        changed = dataclasses.replace(seen.sessions[0], **changes)
        reported = {changed.internal_id: changed.state}
        return dataclasses.replace(seen, sessions=[changed], reported=reported)

    return change


def _seen(**changes: Any) -> Callable[[Observation], Observation]:
    return lambda seen: dataclasses.replace(seen, **changes)


def test_a_host_that_is_well_is_found_to_be() -> None:
    assert violations(GOOD) == []
    assert violations(AFTER) == []
    prepared = _seen(prepared=["p"], prepared_folders=frozenset({"p"}))
    assert violations(prepared(GOOD)) == []


def test_the_session_of_a_container_is_known_by_label_record_or_name() -> None:
    labelled = {LABEL_SESSION: "x"}
    assert session_of("c1", "any", labelled, []) == "x"
    prepared = {LABEL_PREPARED: "p"}
    assert session_of("c1", "tiltyard-prepared-p", prepared, []) == ""
    recorded = dataclasses.replace(RUNNING, container="c1")
    assert session_of("c1", "tiltyard-prepared-p", prepared, [recorded]) == recorded.internal_id
    assert session_of("c1", "tiltyard-x", prepared, []) == "x"


@pytest.mark.parametrize(
    ("number", "seen", "change"),
    [
        ("I1", GOOD, _seen(containers=[])),
        ("I1", GOOD, _seen(containers=[CONTAINER, dataclasses.replace(CONTAINER, name="two")])),
        ("I1", AFTER, _seen(containers=[SeenContainer("x", "another", running=False)])),
        ("I1", AFTER, _seen(reported={})),
        ("I1", AFTER, _seen(reported={ENDED.internal_id: State.RUNNING})),
        ("I1", AFTER, _seen(reported={ENDED.internal_id: State.EXITED, "x": State.RUNNING})),
        ("I1", AFTER, _session(state=State.CREATED, ports=())),
        ("I1", GOOD, _seen(prepared=["p"])),
        ("I1", GOOD, _seen(prepared_folders=frozenset({"p"}))),
        ("I1", GOOD, _seen(prepared=["p", "p"], prepared_folders=frozenset({"p"}))),
        ("I2", GOOD, _seen(free_ports=197)),
        ("I2", AFTER, _seen(free_ports=199)),
        ("I2", AFTER, _seen(rules=ADDRESSES)),
        ("I2", GOOD, _seen(rules=frozenset())),
        ("I2", GOOD, _seen(containers=[dataclasses.replace(CONTAINER, ports=frozenset())])),
        ("I2", GOOD, _session(ports=(*PORTS, PORTS[0]))),
        ("I3", GOOD, _seen(living=frozenset())),
        ("I3", GOOD, _seen(living=frozenset({Process(100, 8)}))),
        ("I3", AFTER, _seen(living=frozenset({PROCESS}))),
        ("I3", AFTER, _seen(containers=[dataclasses.replace(CONTAINER, ports=frozenset())])),
        ("I4", GOOD, _session(deadline=Deadline(NOW - 11, "boot", 1.0))),
        (
            "I4",
            AFTER,
            _session(deadline=Deadline(NOW - 48, "boot", 1.0), end_reason=EndReason.TTL),
        ),
        (
            "I4",
            dataclasses.replace(AFTER, more_late_seconds=5),
            _session(deadline=Deadline(NOW - 66, "boot", 1.0), end_reason=EndReason.TTL),
        ),
        ("I5", GOOD, _session(stop_reason=EndReason.STOPPED)),
        ("I5", GOOD, _seen(restarts_before={RUNNING.internal_id: 1})),
    ],
)
def test_what_cannot_be_is_found(
    number: str, seen: Observation, change: Callable[[Observation], Observation]
) -> None:
    found = violations(change(seen))
    assert found
    assert {one.partition(":")[0] for one in found} >= {number}


def _between(begin: float, end: float | None, **spec: Any) -> Session:
    state = State.RUNNING if end is None else State.EXITED
    return a_session(spec=a_spec(**spec), state=state, start_time=begin, end_time=end)


def test_two_sessions_of_one_id_may_follow_each_other_and_not_overlap() -> None:
    assert doubled([_between(0, 10), _between(10, None)]) == []
    assert doubled([_between(0, 20), _between(10, None)])
    assert doubled([_between(0, None), _between(100, None)])


def test_a_claimed_session_may_have_been_started_long_before() -> None:
    was_claimed: dict[str, Any] = {"standby": Standby("pool", 1), "claim": Claim("{}")}
    ended = dataclasses.replace(_between(0, 30), **was_claimed)
    assert doubled([_between(10, 20), ended]) == []
    assert doubled([_between(10, 40), ended])
    assert doubled([_between(10, None), dataclasses.replace(_between(0, None), **was_claimed)])
    standby = dataclasses.replace(_between(0, None), standby=Standby("pool", 1))
    assert beyond_quota([_between(10, None), ended, standby], {"acme": 1}) == []


def test_a_quota_counts_those_that_live_at_one_time() -> None:
    assert beyond_quota([_between(0, 10), _between(10, 20)], {"acme": 1}) == []
    assert beyond_quota([_between(0, 10), _between(5, None)], {"acme": 1})
    assert beyond_quota([_between(0, 10), _between(5, None)], {"acme": 2, "other": 0}) == []


def _log(*numbers: int) -> bytes:
    return b"".join(b"%06d 2026-01-01T00:00:00.000Z tick\n" % number for number in numbers)


@pytest.mark.parametrize(
    "log",
    [
        b"",
        _log(1, 2, 3),
        _log(1, 2, 1, 2, 3),
        _log(1, 3, 2, 4),
        b"[tiltyard: 100 bytes were dropped]\n" + _log(7, 8),
        b"xxx" + _log(1, 2) + b"\x00\xff\n",
        b"[tiltyard: 9 bytes were dropped]\n" + _log(999_999, 1_000_000),
    ],
)
def test_a_whole_log_is_found_to_be(log: bytes) -> None:
    assert log_violations("x", log) == []


@pytest.mark.parametrize(
    "log",
    [
        _log(1, 3),
        _log(2, 3),
        _log(1, 2, 2, 3),
        _log(1, 4, 3, 2),
        _log(2, 1, 4),
    ],
)
def test_a_line_lost_doubled_or_out_of_order_is_found(log: bytes) -> None:
    assert log_violations("x", log)


def test_a_log_that_lacks_its_end_or_a_run_is_found() -> None:
    assert log_violations("x", _log(1, 2, 1, 2, 3), starts=2, last=3) == []
    assert log_violations("x", _log(1, 2), starts=2) == []  # ended before its first line
    assert log_violations("x", _log(1, 2, 3), last=4)
    assert log_violations("x", b"", last=4)
    assert log_violations("x", _log(1, 2), starts=3)
    assert log_violations("x", _log(1, 2, 1, 2), starts=1)
    lost = _log(1, 2) + b"[tiltyard: a part of this log was lost: why]\n"
    assert log_violations("x", lost, last=4) == []


def test_lost_lines_are_counted_where_nothing_says_so() -> None:
    assert lines_lost(_log(1, 2, 1, 2), last=2) == 0
    assert lines_lost(_log(1, 4, 3, 6), last=9) == 1 + 1 + 3
    assert lines_lost(_log(3) + b"[tiltyard: 9 bytes were dropped]\n" + _log(9)) == 2


def test_lateness_counts_ends_of_lifetimes_alone() -> None:
    due = Deadline(NOW - 60, "boot", 1.0)
    late = dataclasses.replace(ENDED, deadline=due, end_reason=EndReason.TTL)
    assert lateness(late) == 10
    assert lateness(dataclasses.replace(late, end_reason=EndReason.STOPPED)) == 0


def test_what_is_left_behind_is_found() -> None:
    before = {"links": frozenset({"lo"}), "rules": frozenset({"a"})}
    assert leftovers(before, {"links": frozenset({"lo"}), "rules": frozenset()}) == []
    assert leftovers(before, {"links": frozenset({"lo", "x"})}) == ["I11: links left: ['x']"]
    assert leftovers(before, {"spool": frozenset({"x"})}) == ["I11: spool left: ['x']"]


def test_what_an_engine_may_forget_of_one_container_is_left_out_and_nothing_else() -> None:
    forgotten = {
        "links": frozenset({"veth1a2b3c4"}),
        "rules": frozenset(
            {
                "-A DOCKER ! -i docker0 -p udp -m udp --dport 7000 -j DNAT --to-destination x:7",
                "-A POSTROUTING -s 172.17.0.2/32 -d 172.17.0.2/32 -p udp -j MASQUERADE",
            }
        ),
        "mounts": frozenset({"/tmp/engine/docker/overlay2/0a1b-init/merged"}),
    }
    kept = {
        "links": frozenset({"lo", "br-1a2b"}),
        "rules": frozenset({"-A DOCKER -i docker0 -j RETURN", "-N TILTYARD"}),
        "mounts": frozenset({"/tmp/engine/docker/overlay2/0a1b/merged"}),
        "spool": frozenset({"veth1"}),
    }
    everything = {kind: found | forgotten.get(kind, frozenset()) for kind, found in kept.items()}
    assert without_forgotten(everything) == kept


def test_an_engine_that_ended_may_have_taken_lines_with_it_and_doubled_none() -> None:
    assert log_violations("x", _log(1, 3), may_lack=1) == []
    assert log_violations("x", _log(1, 1000), may_lack=1) == []
    assert log_violations("x", _log(1, 2000), may_lack=1)
    assert log_violations("x", _log(1, 2, 2, 4), may_lack=1)
    assert log_violations("x", _log(1, 3, 5), may_lack=1)
    assert log_violations("x", _log(1, 5, 3), may_lack=2)
