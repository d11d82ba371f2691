"""Which standbys a host starts and which it stops, given its pools and those that it has. Pure.

    a pool has          standbys of its newest spec that it lacks are started
    too few             while older ones are ready, SURGE_PART of its size more than that live
    older ones          each goes once one of the newest spec is ready instead of it
    no room             an older one goes first, one at a time
    too many            what is not ready goes first, then the older spec, then the younger
    a drained host      all go, none is started

A standby in doubt is none of this: it may have been claimed.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from agent.domain import restarts
from agent.domain.pools import WarmPool
from agent.domain.session import Session

SURGE_PART = 4
"""A pool of this many lives with one more than its size while its standbys are replaced."""


@dataclass(frozen=True, slots=True)
class Setback:
    """Why a pool is not full: the cause, and before when nothing is started for it again.

    `until` is in seconds of the monotonic clock, `delay` how long that was put off.
    """

    cause: str
    delay: float = 0.0
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class Holding:
    """What a host has of its pools.

    `standbys` are live, not in doubt, not claimed and not stopped; `leaving` counts
    those of each pool that are on their way out. `held_back` are pools for which nothing is
    started for now; `cramped` those whose next standby had no room.
    """

    standbys: Iterable[Session]
    leaving: Mapping[str, int] = field(default_factory=dict)
    held_back: Collection[str] = ()
    cramped: Collection[str] = ()
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """`start` names the pool of each standby to start, the emptiest first; `stop` internal ids."""

    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()


def plan(pools: Iterable[WarmPool], has: Holding) -> Plan:
    """What to start and what to stop now."""
    by_pool: dict[str, list[Session]] = defaultdict(list)
    for session in has.standbys:
        if session.standby is not None:
            by_pool[session.standby.pool].append(session)
    if has.draining:
        return Plan(stop=tuple(each.internal_id for own in by_pool.values() for each in own))
    starts: list[tuple[float, str]] = []
    stops: list[Session] = []
    for pool in pools:
        own = by_pool.pop(pool.pool, [])
        newest = [each for each in own if _revision(each) == pool.spec_revision]
        older = [each for each in own if _revision(each) != pool.spec_revision]
        if pool.pool not in has.held_back:
            first, count = len(newest), _missing(pool, newest, older)
            starts += [((first + each) / pool.size, pool.pool) for each in range(count)]
        replaced = max(0, pool.size - sum(map(_is_ready, newest)))
        cramped = pool.pool in has.cramped and not has.leaving.get(pool.pool)
        if cramped and all(map(_is_ready, newest)):
            replaced = min(replaced, len(older) - 1)
        stops += _surplus(newest, pool.size) + _surplus(older, max(0, replaced))
    for unknown in by_pool.values():
        stops += unknown
    starts.sort()
    return Plan(tuple(pool for _, pool in starts), tuple(each.internal_id for each in stops))


def set_back(before: Setback | None, cause: str, now: float) -> Setback:
    """A pool whose standbys crash or do not start waits 1 s, and twice as long the next time.

    Of several that fail while it waits, the first counts: they have one cause.
    """
    if before is not None and now < before.until:
        return before
    lasted = now - before.until if before is not None else 0.0
    delay = restarts.next_delay(before.delay if before is not None else 0.0, lasted)
    return Setback(cause, delay, now + delay)


def _missing(pool: WarmPool, newest: list[Session], older: list[Session]) -> int:
    """How many to start: also while older ones are ready, but not all of them at once then."""
    surge = -(-pool.size // SURGE_PART)
    room = pool.size + surge - len(newest) - sum(map(_is_ready, older))
    return max(0, min(pool.size - len(newest), room))


def _surplus(found: list[Session], kept: int) -> list[Session]:
    """Those to end so that this number is kept."""
    if len(found) <= kept:
        return []
    found.sort(key=lambda each: (_is_ready(each), _revision(each), -each.create_time))
    return found[: len(found) - kept]


def _is_ready(session: Session) -> bool:
    return session.ready_time is not None


def _revision(session: Session) -> int:
    return session.standby.revision if session.standby is not None else 0
