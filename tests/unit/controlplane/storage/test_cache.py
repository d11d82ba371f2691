"""What is kept in memory is never older than the transactions that resolved before."""

from functools import partial

import pytest

from controlplane.storage.engine.cache import Cache
from controlplane.storage.engine.changes import Change, Changes, Topic

ONE = ("alice", "one")
TWO = ("alice", "two")


@pytest.fixture
def changes() -> Changes:
    return Changes()


def cache(changes: Changes, most: int = 10) -> Cache[str]:
    return Cache(changes, {Topic.SESSION, Topic.TAG}, most=most, size_of=len)


def keep(into: Cache[str], key: tuple[str, ...], value: str) -> None:
    with into.reading(key) as keep_it:
        keep_it(value)


async def found(reads: list[str], value: str | None) -> str | None:
    reads.append("read")
    return value


async def test_result_is_read_once(changes: Changes) -> None:
    kept = cache(changes)
    reads: list[str] = []
    assert await kept.get_or_read(ONE, partial(found, reads, "x")) == "x"
    assert await kept.get_or_read(ONE, partial(found, reads, "y")) == "x"
    assert reads == ["read"]


async def test_what_does_not_exist_is_read_each_time(changes: Changes) -> None:
    kept = cache(changes)
    reads: list[str] = []
    for _ in range(2):
        assert await kept.get_or_read(ONE, partial(found, reads, None)) is None
    assert reads == ["read", "read"]


@pytest.mark.parametrize("topic", [Topic.SESSION, Topic.TAG])
def test_change_drops_the_result_of_its_key_alone(changes: Changes, topic: Topic) -> None:
    kept = cache(changes)
    keep(kept, ONE, "1")
    keep(kept, TWO, "2")
    changes.publish([Change(Topic.TOKEN, ONE), Change(topic, TWO)])
    assert kept.get(ONE) == "1"
    assert kept.get(TWO) is None


def test_change_of_anything_drops_all_results(changes: Changes) -> None:
    kept = cache(changes)
    keep(kept, ONE, "1")
    with kept.reading(TWO) as keep_two:
        changes.publish([Change(Topic.SESSION)])
        keep_two("2")
    assert kept.get(ONE) is None
    assert kept.get(TWO) is None


@pytest.mark.part_alone
def test_f52_what_was_read_before_a_change_is_not_kept_after_it(changes: Changes) -> None:
    kept = cache(changes)
    with kept.reading(ONE) as keep_old:
        changes.publish([Change(Topic.SESSION, ONE)])
        with kept.reading(ONE) as keep_new:
            keep_old("old")
            assert kept.get(ONE) is None
            keep_new("new")
    assert kept.get(ONE) == "new"


def test_read_that_fails_leaves_nothing(changes: Changes) -> None:
    kept = cache(changes)
    keep(kept, ONE, "1")
    with pytest.raises(KeyError), kept.reading(ONE):
        raise KeyError
    assert kept.get(ONE) is None
    keep(kept, ONE, "0123456789")
    assert kept.get(ONE) is not None


def test_the_least_recently_used_are_dropped_beyond_the_budget(changes: Changes) -> None:
    kept = cache(changes, most=6)
    for name in ("a", "b", "c"):
        keep(kept, (name,), name * 2)
    assert kept.get(("a",)) == "aa"
    keep(kept, ("d",), "dd")
    assert [name for name in ("a", "b", "c", "d") if kept.get((name,))] == ["a", "c", "d"]
    keep(kept, ONE, "larger than the budget")
    assert [name for name in ("a", "b", "c", "d") if kept.get((name,))] == []
    assert kept.get(ONE) is None
