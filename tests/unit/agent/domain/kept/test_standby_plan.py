from typing import Any

import pytest

from agent.domain.kept.standby_plan import Plan, plan
from agent.domain.sessions.session import Session, Standby
from tests.support.agent.pools import OTHER, POOL, a_pool
from tests.support.agent.samples import a_session


def a_standby(pool: str = POOL, *, revision: int = 1, ready: bool = True, **more: Any) -> Session:
    return a_session(standby=Standby(pool, revision), ready_time=1.0 if ready else None, **more)


def at(revision: int, size: int) -> Any:
    """A pool with a spec of this revision."""
    return a_pool(size, revision=revision, spec_revision=revision)


def ids(*sessions: Session) -> tuple[str, ...]:
    return tuple(each.internal_id for each in sessions)


def test_missing_standbys_are_started_unless_the_host_is_drained() -> None:
    has = [a_standby(), a_standby(ready=False)]
    assert plan([at(1, 5)], has) == Plan(start=(POOL,) * 3)
    assert plan([at(1, 2)], has) == Plan()
    assert plan([at(1, 5)], has, draining=True) == Plan(stop=ids(*has))


def test_emptiest_pool_is_filled_first() -> None:
    pools = [a_pool(4, spec_revision=1), a_pool(2, pool=OTHER, spec_revision=1)]
    assert plan(pools, [a_standby(), a_standby()]).start == (OTHER, POOL, OTHER, POOL)


def test_surplus_is_stopped_unready_first_then_youngest() -> None:
    young = a_standby(create_time=2.0)
    old = a_standby(create_time=1.0)
    not_ready = a_standby(ready=False, create_time=0.0)
    has = [young, old, not_ready]
    assert plan([at(1, 2)], has).stop == ids(not_ready)
    assert plan([at(1, 1)], has).stop == ids(not_ready, young)
    assert plan([at(1, 0)], has).stop == ids(not_ready, young, old)


def test_older_standby_is_stopped_once_a_newer_is_ready() -> None:
    older = [a_standby(), a_standby(), a_standby(), a_standby()]
    coming = a_standby(revision=2, ready=False)
    assert plan([at(2, 4)], older) == Plan(start=(POOL,))
    assert plan([at(2, 4)], [*older, coming]) == Plan()
    come = a_standby(revision=2)
    assert plan([at(2, 4)], [*older, come]).stop == ids(older[0])
    assert plan([at(2, 4)], [*older[1:], come]).start == (POOL,)


def test_older_standbys_are_stopped_unready_first_then_oldest_spec() -> None:
    third = a_standby(revision=3)
    first = a_standby(revision=1)
    coming = a_standby(revision=2, ready=False)
    has = [third, first, coming, a_standby(revision=4)]
    assert plan([at(4, 3)], has).stop == ids(coming)
    assert plan([at(4, 2)], has).stop == ids(coming, first)


def test_unready_older_standbys_do_not_block_starts() -> None:
    coming = [a_standby(ready=False) for _ in range(4)]
    assert plan([at(2, 4)], coming) == Plan(start=(POOL,) * 4)


def test_older_standbys_make_space_one_at_a_time() -> None:
    older = [a_standby(create_time=1.0), a_standby(create_time=2.0)]
    assert plan([at(2, 2)], older, cramped=[POOL]).stop == ids(older[1])
    assert plan([at(2, 2)], older, leaving=[POOL], cramped=[POOL]).stop == ()
    coming = a_standby(revision=2, ready=False)
    assert plan([at(2, 2)], [*older, coming], cramped=[POOL]).stop == ()
    assert plan([at(2, 5)], [a_standby(revision=2)], cramped=[POOL]).stop == ()


@pytest.mark.parametrize("size", [1, 3, 4, 5, 100])
def test_replacement_keeps_a_pool_full_and_ends(size: int) -> None:
    """The number of ready standbys never drops while every start succeeds."""
    has = [a_standby() for _ in range(size)]
    for _ in range(3 * size):
        found = plan([at(2, size)], has)
        has = [each for each in has if each.internal_id not in found.stop]
        has += [a_standby(revision=2) for _ in found.start]
        assert size <= len(has) <= size + -(-size // 4)
    assert [each.standby.revision for each in has if each.standby] == [2] * size
