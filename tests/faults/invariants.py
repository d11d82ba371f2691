"""What holds after every fault, whatever it was: I1 to I11 but for I6 and I10. Pure.

An `Observation` is what a host's records, its engine and its kernel say at one moment when nothing
is under way. I6 and I10 are what callers see, and `checks.py` asks as one.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agent.domain.session import Process, Session
from tiltyard.contract import EndReason, NetworkMode, State

Address = tuple[str, int]  # A protocol and a host port
OF_A_HOST = frozenset({1, 2, 3, 4, 5})  # The invariants that `violations` looks at
LATE_SECONDS = 10.0  # How long after its time a stop may begin when something was broken
EARLY_SECONDS = 1.0  # How much earlier an end may look by the wall clocks of two processes

_FAR = 1e12  # A Unix time after all others
_LINE = re.compile(rb"(\d{6,}) \d{4}-\d\d-\d\dT[\d:.]+Z ")
_DROPPED = b"[tiltyard: "
_MOST_TAKEN = 2**16 // len("000001 2000-01-01T00:00:00.000Z tick\n")
"""Lines in 64 KiB, the shortest that the game writes: what an engine has of one pipe at most."""


@dataclass(frozen=True, slots=True)
class SeenContainer:
    """A container with the agent's label; `running` is what the engine says."""

    name: str
    internal_id: str
    running: bool
    ports: frozenset[Address] = frozenset()


@dataclass(frozen=True, slots=True)
class Observation:
    """What is there at one moment; `now` is Unix time.

    `living` are those of the sessions' recorded processes that are alive. `reported` has the
    states that the agent reports, by id, and `free_ports` is what it counts. `rules` are the
    ports that the firewall leads to containers, None where that is unknown.
    """

    now: float
    sessions: Sequence[Session]
    containers: Sequence[SeenContainer]
    living: frozenset[Process]
    reported: Mapping[str, State]
    ports: int
    free_ports: int
    rules: frozenset[Address] | None = None
    restarts_before: Mapping[str, int] = field(default_factory=dict)
    clocks_moved: bool = False
    """True when the agent was made to see other clocks than its observer."""
    more_late_seconds: float = 0.0
    """How much later than LATE_SECONDS: the grace period, and while the agent was down."""


def violations(seen: Observation) -> list[str]:
    """Every way in which what was seen cannot be right, each with the number of its invariant."""
    rules = (_containers_and_records, _ports, _processes, _lifetimes, _stops_and_restarts)
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
    """How many seconds after its time a lifetime ended; 0 for any other end."""
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
    """Callers' ids that two sessions had at one time (I7)."""
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
    """Accounts that had more sessions at one time than they may, at most `most` each (I9)."""
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
    """The host ports that a session holds, or those that the engine publishes."""
    ports = [port for port in session.ports if not (published and port.tls)]
    return [(port.protocol.value, number) for port in ports for number in port.taken]


def live(sessions: Iterable[Session]) -> Iterator[Session]:
    """Those that have their ports."""
    return (session for session in sessions if not session.state.ended)


@dataclass(frozen=True, slots=True)
class _Run:
    """The numbers of the lines of one run of the game, or of what follows one of our markers."""

    numbers: list[int]
    is_cut: bool

    @property
    def gaps(self) -> list[int]:
        """How many lines are missing, wherever some are."""
        first = [] if self.is_cut else [0]
        return [b - a - 1 for a, b in _breaks([*first, *self.numbers]) if b > a]


def log_violations(
    internal_id: str, log: bytes, *, may_lack: int = 0, starts: int = 0, last: int = 0
) -> list[str]:
    """What is lost, doubled or out of order in the demo game's log, whole and after its end (I8).

    The game numbers its lines, each run of it from 1. It may write each second line to stderr:
    order is kept within a stream. Anything may follow one of our markers. An engine that ends
    loses what it has read and not yet written, some lines in a row: the number of such gaps the
    log `may_lack`. `starts`: how often the game began, `last`: the number of its last line; 0
    where that is unknown.
    """
    runs = _runs(log)
    wrong = []
    for run in runs:
        numbers = run.numbers
        streams = ([n for n in numbers if n % 2 == rest] for rest in (0, 1))
        lost = len(run.gaps) > may_lack or max(run.gaps, default=0) > _MOST_TAKEN
        if lost or len(set(numbers)) != len(numbers):
            places = ", ".join(f"{a} to {b}" for a, b in _breaks([0, *numbers])[:5])
            wrong.append(f"I8: lines of {internal_id} are lost or doubled: {places}")
        elif any(own != sorted(own) for own in streams):
            wrong.append(f"I8: lines of {internal_id} are out of order")
    whole = sum(not run.is_cut for run in runs)
    # A game may be ended before its first line.
    too_few = runs and not may_lack and whole == len(runs) < starts - 1
    if starts and (whole > starts or too_few):
        wrong.append(f"I8: {internal_id} began {starts} times, its log has {whole} beginnings")
    if last and not may_lack and not _is_cut_at_its_end(log) and _last(runs) != last:
        wrong.append(f"I8: the log of {internal_id} ends with {_last(runs)}, the game with {last}")
    return wrong


def lines_lost(log: bytes, last: int = 0) -> int:
    """How many lines a log lacks, other than where one of our markers says so."""
    runs = _runs(log)
    at_the_end = last - _last(runs) if last and not _is_cut_at_its_end(log) else 0
    return at_the_end + sum(sum(run.gaps) for run in runs)


def _runs(log: bytes) -> list[_Run]:
    runs = [_Run([], is_cut=False)]
    for line in log.splitlines():
        found = _LINE.search(line)  # after bytes without a newline, too
        if line.startswith(_DROPPED):
            runs.append(_Run([], is_cut=True))
        elif found and int(found[1]) == 1 and runs[-1].numbers:
            runs.append(_Run([1], is_cut=False))
        elif found:
            runs[-1].numbers.append(int(found[1]))
    return [run for run in runs if run.numbers]


def _last(runs: Sequence[_Run]) -> int:
    return max(runs[-1].numbers) if runs else 0


def _is_cut_at_its_end(log: bytes) -> bool:
    return log.rpartition(b"\n")[0].rpartition(b"\n")[2].startswith(_DROPPED)


def _breaks(run: Iterable[int]) -> list[tuple[int, int]]:
    """Where a line is not followed by the next one."""
    return [(a, b) for a, b in itertools.pairwise(sorted(run)) if b != a + 1]


def leftovers(
    before: Mapping[str, frozenset[str]], after: Mapping[str, frozenset[str]]
) -> list[str]:
    """What is there, kind by kind, that was not there before (I11)."""
    wrong = []
    for kind, found in after.items():
        more = found - before.get(kind, frozenset())
        if more:
            wrong.append(f"I11: {kind} left: {sorted(more)[:5]}")
    return wrong
