"""Plan of the standbys that a host starts and stops. Pure.

    too few             standbys of the newest spec are started
    older specs         surge: up to 1/SURGE_PART of the size above it while older ones are ready;
                        each is stopped once one of the newest spec is ready to replace it
    no room             an older one is stopped first, one at a time
    too many            stopped first: not ready, then of an older spec, then younger
    a drained host      all are stopped

Standbys in doubt are left alone: they may have been claimed.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from agent.domain.pools import WarmPool
from agent.domain.session import Session

SURGE_PART = 4
"""A pool may exceed its size by 1/SURGE_PART, rounded up, while its standbys are replaced."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`start` has the pool of each standby to start, emptiest first; `stop` has internal ids."""

    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()


def plan(
    pools: Iterable[WarmPool],
    standbys: Iterable[Session],
    *,
    leaving: Collection[str] = (),
    held_back: Collection[str] = (),
    cramped: Collection[str] = (),
    draining: bool = False,
) -> Plan:
    """What to start and stop now.

    `standbys` are live, not in doubt, not claimed and not being stopped; `leaving` are the pools
    of those being stopped. `held_back` are pools in back-off; `cramped` those whose next standby
    did not fit.
    """
    by_pool: dict[str, list[Session]] = defaultdict(list)
    for session in standbys:
        if session.standby is not None:
            by_pool[session.standby.pool].append(session)
    if draining:
        return Plan(stop=tuple(each.internal_id for own in by_pool.values() for each in own))
    starts: list[tuple[float, str]] = []
    stops: list[Session] = []
    for pool in pools:
        own = by_pool.pop(pool.pool, [])
        newest = [each for each in own if _revision(each) == pool.spec_revision]
        older = [each for each in own if _revision(each) != pool.spec_revision]
        if pool.pool not in held_back:
            first = len(newest)
            count = _missing(pool, newest, older)
            starts += [((first + each) / pool.size, pool.pool) for each in range(count)]
        older_kept = max(0, pool.size - sum(map(_is_ready, newest)))
        lacks_room = pool.pool in cramped and pool.pool not in leaving
        if lacks_room and all(map(_is_ready, newest)):
            older_kept = min(older_kept, len(older) - 1)
        stops += _surplus(newest, pool.size) + _surplus(older, max(0, older_kept))
    for unknown in by_pool.values():
        stops += unknown
    starts.sort()
    return Plan(tuple(pool for _, pool in starts), tuple(each.internal_id for each in stops))


def _missing(pool: WarmPool, newest: list[Session], older: list[Session]) -> int:
    """How many to start, within the surge while older ones are ready."""
    surge = -(-pool.size // SURGE_PART)
    room = pool.size + surge - len(newest) - sum(map(_is_ready, older))
    return max(0, min(pool.size - len(newest), room))


def _surplus(found: list[Session], kept: int) -> list[Session]:
    """The standbys to stop so that `kept` remain."""
    if len(found) <= kept:
        return []
    found.sort(key=lambda each: (_is_ready(each), _revision(each), -each.create_time))
    return found[: len(found) - kept]


def _is_ready(session: Session) -> bool:
    return session.ready_time is not None


def _revision(session: Session) -> int:
    return session.standby.revision if session.standby is not None else 0
