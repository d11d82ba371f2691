"""Invariants that must hold after every fault: I1 to I11, except I6 and I10. Pure.

An `Observation` is the state of a host's records, engine and kernel at a moment when no work is in
progress. I6 and I10 are about responses to callers: see `callers.py`.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agent.domain.containers.engine import (
    LABEL_PREPARED,
    LABEL_SESSION,
    container_name,
    prepared_name,
)
from agent.domain.sessions.session import Process, Session
from tiltyard.contract import EndReason, NetworkMode, State

Address = tuple[str, int]  # A protocol and a host port
OF_A_HOST = frozenset({1, 2, 3, 4, 5})  # The invariants that `violations` looks at
LATE_SECONDS = 10.0  # Tolerance for the begin of a stop after its time, while a fault was injected
EARLY_SECONDS = 1.0  # Tolerance for the wall clocks of two processes

_FAR = 1e12  # A Unix time after all others


@dataclass(frozen=True, slots=True)
class SeenContainer:
    """A container with the agent's label; `running` is its state in the engine."""

    name: str
    internal_id: str
    running: bool
    ports: frozenset[Address] = frozenset()


def session_of(
    container: str, name: str, labels: Mapping[str, str], sessions: Iterable[Session]
) -> str:
    """Return the internal id of a container's session; empty for a prepared container.

    A taken container is identified by the session's record, or by its name if records are lost.
    """
    if LABEL_SESSION in labels:
        return labels[LABEL_SESSION]
    for session in sessions:
        if session.container == container:
            return session.internal_id
    waits = name == prepared_name(labels[LABEL_PREPARED])
    return "" if waits else name.removeprefix(container_name(""))


@dataclass(frozen=True, slots=True)
class Observation:
    """The state of a host at one moment; `now` is Unix time.

    `living` are those of the sessions' recorded processes that are alive. `reported` has the
    states that the agent reports, by id, and `free_ports` is what it counts. `rules` are the
    ports that the firewall leads to containers, None where that is unknown. `prepared` are the ids
    of the containers that wait for a session, which `containers` lacks, and `prepared_folders`
    those of which the host has a folder.
    """

    now: float
    sessions: Sequence[Session]
    containers: Sequence[SeenContainer]
    living: frozenset[Process]
    reported: Mapping[str, State]
    ports: int
    free_ports: int
    rules: frozenset[Address] | None = None
    prepared: Sequence[str] = ()
    prepared_folders: frozenset[str] = frozenset()
    restarts_before: Mapping[str, int] = field(default_factory=dict)
    clocks_moved: bool = False
    """True if the test gave the agent other clocks than its observer."""
    more_late_seconds: float = 0.0
    """Added to LATE_SECONDS: the grace period, and the downtime of the agent."""


def violations(seen: Observation) -> list[str]:
    """Return the violated invariants of an observation, each with its number."""
    rules = (
        _containers_and_records,
        _prepared,
        _ports,
        _processes,
        _lifetimes,
        _stops_and_restarts,
    )
    return [wrong for rule in rules for wrong in rule(seen)]


def _containers_and_records(seen: Observation) -> Iterator[str]:
    by_session = defaultdict(list)
    for container in seen.containers:
        by_session[container.internal_id].append(container)
    recorded = {session.internal_id: session for session in seen.sessions}
    for session in seen.sessions:
        who = session.internal_id
        state = session.state
        found = by_session[who]
        if len(found) > 1:
            yield f"I1: {who} has containers {[each.name for each in found]}"
        if state is State.CREATED:
            yield f"I1: {who} is neither started nor undone"
        if state is State.RUNNING and not any(each.running for each in found):
            yield f"I1: {who} is running without a container"
        if seen.reported.get(who) is not state:
            yield f"I1: {who} is {state.value}, and reported as {seen.reported.get(who)}"
    for who in by_session.keys() - recorded.keys():
        yield f"I1: a container of {who} has no record"
    for who in seen.reported.keys() - recorded.keys():
        yield f"I1: {who} is reported and not recorded"


def _prepared(seen: Observation) -> Iterator[str]:
    used = [session.prepared for session in seen.sessions if session.prepared]
    for prepared_id, count in Counter([*used, *seen.prepared]).items():
        if count > 1:
            yield f"I1: prepared container {prepared_id} is there or used {count} times"
    for prepared_id in seen.prepared_folders - {*used, *seen.prepared}:
        yield f"I1: folder of {prepared_id}, which no container has"
    for prepared_id in {*seen.prepared} - seen.prepared_folders:
        yield f"I1: prepared container {prepared_id} has no folder"


def _ports(seen: Observation) -> Iterator[str]:
    held = [port for session in live(seen.sessions) for port in ports_of(session)]
    for port, count in Counter(held).items():
        if count > 1:
            yield f"I2: {port} is held {count} times"
    # An engine may go on calling running what died without its seeing it.
    dead = {each.internal_id for each in seen.sessions if each.state is State.DEAD}
    alive = [each for each in seen.containers if each.running and each.internal_id not in dead]
    published = [port for each in alive for port in each.ports]
    bridged = [
        port
        for session in live(seen.sessions)
        if session.state is State.RUNNING and session.spec.network_mode is NetworkMode.BRIDGE
        for port in ports_of(session, published=True)
    ]
    if sorted(published) != sorted(bridged):
        yield f"I2: published {sorted(published)}, held {sorted(bridged)}"
    if seen.rules is not None and seen.rules != frozenset(published):
        yield f"I2: led to containers {sorted(seen.rules)}, published {sorted(published)}"
    if seen.ports - seen.free_ports != len(held):
        yield f"I2: {seen.free_ports} of {seen.ports} ports are free, {len(held)} are held"


def _processes(seen: Observation) -> Iterator[str]:
    for session in seen.sessions:
        lives = session.process in seen.living
        if session.state is State.RUNNING and not lives:
            yield f"I3: {session.internal_id} is running without its process {session.process}"
        if session.state.ended and lives:
            yield f"I3: {session.internal_id} has ended and {session.process} is alive"
    exited = {each.internal_id for each in seen.sessions if each.state is State.EXITED}
    for container in seen.containers:
        if container.running and container.internal_id in exited:
            yield f"I3: {container.internal_id} has ended and {container.name} runs"


def _lifetimes(seen: Observation) -> Iterator[str]:
    for session in seen.sessions:
        if session.deadline is None or seen.clocks_moved:
            continue
        due = session.deadline.expire_time
        end = session.end_time
        if not session.state.ended and seen.now > due + LATE_SECONDS:
            yield f"I4: {session.internal_id} should have ended {seen.now - due:.1f} s ago"
        if session.end_reason is EndReason.TTL and end is not None and end < due - EARLY_SECONDS:
            yield f"I4: {session.internal_id} was ended {due - end:.1f} s early"
        late = lateness(session)
        if late > LATE_SECONDS + seen.more_late_seconds:
            yield f"I4: {session.internal_id} was ended {late:.1f} s late"


def lateness(session: Session) -> float:
    """Return the seconds from the end of a lifetime to the stop; 0 for any other end."""
    if session.deadline is None or session.end_reason is not EndReason.TTL:
        return 0.0
    return max(0.0, (session.end_time or 0.0) - session.deadline.expire_time)


def _stops_and_restarts(seen: Observation) -> Iterator[str]:
    for session in seen.sessions:
        if session.stop_reason is not None and session.state in {State.RUNNING, State.RESTARTING}:
            yield f"I5: {session.internal_id} was to end and is {session.state.value}"
        before = seen.restarts_before.get(session.internal_id, 0)
        if session.restart_count < before:
            yield f"I5: restarts of {session.internal_id}: {session.restart_count} after {before}"


def doubled(sessions: Iterable[Session]) -> list[str]:
    """Return the callers' ids that two concurrent sessions had (I7)."""
    by_caller = defaultdict(list)
    for session in sessions:
        identity = session.spec.identity
        by_caller[identity.account, identity.session_id].append(_span(session))
    return [
        f"I7: two sessions of {caller} at one time"
        for caller, spans in by_caller.items()
        for (_, end), (begin, _) in itertools.pairwise(sorted(spans))
        if begin < end - EARLY_SECONDS
    ]


def beyond_quota(sessions: Iterable[Session], most: Mapping[str, int]) -> list[str]:
    """Return the accounts that had more than `most` concurrent sessions (I9)."""
    by_account: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for session in sessions:
        if session.is_standby:  # no session of the account before its claim
            continue
        begin, end = _span(session)
        by_account[session.spec.identity.account] += [(begin, 1), (end - EARLY_SECONDS, -1)]
    wrong = []
    for account, steps in by_account.items():
        highest = max(itertools.accumulate(step for _, step in sorted(steps)))
        allowed = most.get(account, highest)
        if highest > allowed:
            wrong.append(
                f"I9: {account} had {highest} sessions at one time, and may have {allowed}"
            )
    return wrong


def _span(session: Session) -> tuple[float, float]:
    end = float("inf") if session.end_time is None else session.end_time
    if session.standby is not None:  # The time of its claim is not recorded
        return min(end, _FAR), end
    begin = session.create_time if session.start_time is None else session.start_time
    return begin, max(begin, end)


def ports_of(session: Session, *, published: bool = False) -> list[Address]:
    """Return the host ports that a session reserves, or those that the engine publishes."""
    ports = [port for port in session.ports if not (published and port.tls)]
    return [(port.protocol.value, number) for port in ports for number in port.taken]


def live(sessions: Iterable[Session]) -> Iterator[Session]:
    """Return the sessions that reserve ports."""
    return (session for session in sessions if not session.state.ended)


_FORGOTTEN = {
    "links": re.compile("^veth"),
    "rules": re.compile("^-A DOCKER .* -j DNAT |^-A POSTROUTING .* -j MASQUERADE$"),
    "mounts": re.compile("/overlay2/[0-9a-f]+-init/merged$"),
}


def without_forgotten(traces: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """Leave out what an engine may forget of a container that it was making.

    It does if it is killed, or if its disk is full, at that moment. Nothing but the engine makes
    these: the container's link, the rules for its ports, and the mount of its init layer.
    """
    return {
        kind: frozenset(each for each in found if not _FORGOTTEN[kind].search(each))
        if kind in _FORGOTTEN
        else found
        for kind, found in traces.items()
    }


def leftovers(
    before: Mapping[str, frozenset[str]], after: Mapping[str, frozenset[str]]
) -> list[str]:
    """Return the resources that did not exist before, by kind (I11)."""
    wrong = []
    for kind, found in after.items():
        more = found - before.get(kind, frozenset())
        if more:
            wrong.append(f"I11: {kind} left: {sorted(more)[:5]}")
    return wrong
