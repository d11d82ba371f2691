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

from agent.domain.kept.pools import WarmPool
from agent.domain.sessions.session import Session

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
    """Plan the standbys to start, by their pools, and those to stop.

    `standbys` are live, not in doubt, not claimed and not being stopped; `leaving` are the pools
    of those being stopped. `held_back` are pools in back-off; `cramped` those whose next standby
    did not fit.
    """
    by_pool: dict[str, list[Session]] = defaultdict(list)
    for session in standbys:
        if session.standby is not None:
            by_pool[session.standby.pool].append(session)
    if draining:
        everything = [standby for own in by_pool.values() for standby in own]
        return Plan(stop=_ids(everything))
    starts: list[tuple[float, str]] = []
    stops: list[Session] = []
    for pool in pools:
        own = by_pool.pop(pool.pool, [])
        newest = [standby for standby in own if _revision(standby) == pool.spec_revision]
        older = [standby for standby in own if _revision(standby) != pool.spec_revision]
        if pool.pool not in held_back:
            starts += _starts(pool, newest, older)
        lacks_room = pool.pool in cramped and pool.pool not in leaving
        stops += _surplus(newest, pool.size)
        stops += _surplus(older, _older_kept(pool, newest, older, lacks_room=lacks_room))
    for of_unknown_pool in by_pool.values():
        stops += of_unknown_pool
    starts.sort()
    return Plan(tuple(pool for _, pool in starts), _ids(stops))


def _starts(
    pool: WarmPool, newest: list[Session], older: list[Session]
) -> list[tuple[float, str]]:
    """The standbys to start: the filled share of the pool before each, and the pool."""
    count = _missing(pool, newest, older)
    return [((len(newest) + number) / pool.size, pool.pool) for number in range(count)]


def _older_kept(
    pool: WarmPool, newest: list[Session], older: list[Session], *, lacks_room: bool
) -> int:
    """Return the number of standbys of an older spec that no ready one of the newest replaces."""
    ready = sum(map(_is_ready, newest))
    kept = pool.size - ready
    if lacks_room and ready == len(newest):
        kept = min(kept, len(older) - 1)  # One makes room for the next of the newest
    return max(0, kept)


def _missing(pool: WarmPool, newest: list[Session], older: list[Session]) -> int:
    """Return the number of standbys to start, within the surge while older ones are ready."""
    surge = -(-pool.size // SURGE_PART)
    room = pool.size + surge - len(newest) - sum(map(_is_ready, older))
    return max(0, min(pool.size - len(newest), room))


def _surplus(found: list[Session], kept: int) -> list[Session]:
    """The standbys to stop so that `kept` remain."""
    if len(found) <= kept:
        return []
    found.sort(key=lambda standby: (_is_ready(standby), _revision(standby), -standby.create_time))
    return found[: len(found) - kept]


def _ids(standbys: Iterable[Session]) -> tuple[str, ...]:
    return tuple(standby.internal_id for standby in standbys)


def _is_ready(session: Session) -> bool:
    return session.ready_time is not None


def _revision(session: Session) -> int:
    return session.standby.revision if session.standby is not None else 0
