"""Retention of ended sessions.

    what                   is kept                      is removed early
    container, for files   `container_seconds`          while the engine's disk is low
    sealed log             `log_seconds`                while the state directory's disk is low
    record and report      `log_seconds`                never alone
    all of a session       as long as any of it         while more than ENDED_KEPT are known

Early removals begin with the oldest of the account that has most, so that a flood from one account
evicts its own. Nothing is removed before its log is sealed, and no log or record while it is read.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from agent.domain.clock import HostClock
from agent.domain.sessions.deadlines import due_by
from agent.domain.sessions.session import Deadline, Session
from tiltyard.runtime.clock import is_trusted

ENDED_KEPT = 10_000  # Most ended sessions of a host, apart from those with an unsealed log
SPARED_AT_ONCE = 8  # Early removals per pass, of containers and of logs each, while a disk is low


@dataclass(frozen=True, slots=True)
class Rules:
    """Retention after the end of a session, in seconds."""

    container_seconds: float
    log_seconds: float


@dataclass(frozen=True, slots=True)
class Shortage:
    """Disks that are low, by their contents. `shared`: containers and logs are on one disk."""

    containers: bool = False
    logs: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Due:
    """Sessions whose container, log, or everything is due for removal.

    `early` are those before the end of their retention. `nothing_left`: the logs' disk is low, and
    nothing can be removed.
    """

    containers: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    early: frozenset[str] = frozenset()
    nothing_left: bool = False


def with_ages(ended: Iterable[Session], clock: HostClock) -> list[tuple[float, Session]]:
    """Ended sessions, each with the seconds since its end.

    Until the wall clock can be trusted, all that ended before this boot are as old as the boot.
    They are in the order of their ends by the wall clock, which early removals keep.
    """
    now = clock.boottime()
    trusted = is_trusted(clock)

    def age(end: Deadline) -> float:
        return now - due_by(clock, end) if trusted or end.boot_id == clock.boot_id else now

    kept = [(each.kept_since, each) for each in ended if each.kept_since]
    kept.sort(key=lambda each: each[0].expire_time)
    return [(age(end), each) for end, each in kept]


def fair_order(oldest_first: Iterable[Session]) -> list[str]:
    """Order of removal: repeatedly the oldest session of the account that has most left.

    Ties go to the account with the oldest session.
    """
    sessions = list(oldest_first)
    newer = Counter[str]()
    ranks = dict[str, int]()
    for session in reversed(sessions):
        account = session.spec.identity.account
        ranks[session.internal_id] = newer[account]
        newer[account] += 1
    return sorted((each.internal_id for each in sessions), key=lambda each: -ranks[each])


def due(
    ended: Sequence[tuple[float, Session]],
    rules: Rules,
    *,
    shortage: Shortage,
    is_read: Callable[[str], bool],
    stuck: Collection[str] = (),
) -> Due:
    """Choose what to remove of ended sessions, each given with its age in seconds.

    `stuck` are those whose last removal failed: they come after the others and do not count as
    freeing space.
    """
    oldest_first = sorted(ended, key=lambda each: -each[0])
    ages = {session.internal_id: seconds for seconds, session in oldest_first}
    surplus = set[str]()
    if len(ages) > ENDED_KEPT:
        order = fair_order(session for _, session in oldest_first)
        surplus.update(order[: len(ages) - ENDED_KEPT])

    sealed = list[Session]()
    unread = list[str]()
    logs = list[Session]()
    for _, session in oldest_first:
        internal_id = session.internal_id
        if session.log_sealed and not session.container_removed:
            sealed.append(session)
        elif session.container_removed and not is_read(internal_id):
            unread.append(internal_id)
            if session.log_sealed:
                logs.append(session)

    early = set[str]()
    if shortage.containers:
        candidates = sorted(fair_order(sealed), key=lambda each: each in stuck)
        early.update(candidates[:SPARED_AT_ONCE])
    frees_space = not early.issubset(stuck)
    # On a shared disk, containers are removed before logs.
    evicts_logs = shortage.logs and not (shortage.shared and frees_space)
    early_logs = fair_order(logs)[:SPARED_AT_ONCE] if evicts_logs else []

    def is_due(internal_id: str, kept_seconds: float) -> bool:
        return internal_id in surplus or ages[internal_id] >= kept_seconds

    sealed_ids = [session.internal_id for session in sealed]
    containers = [
        each for each in sealed_ids if each in early or is_due(each, rules.container_seconds)
    ]
    sessions = [each for each in unread if is_due(each, rules.log_seconds)]
    in_time = {each for each in containers if ages[each] >= rules.container_seconds}
    in_time |= {each for each in sessions if ages[each] >= rules.log_seconds}
    return Due(
        containers=tuple(containers),
        logs=tuple(each for each in early_logs if each not in sessions),
        sessions=tuple(sessions),
        early=frozenset({*containers, *early_logs, *sessions} - in_time),
        nothing_left=shortage.logs and not (frees_space or early_logs),
    )
