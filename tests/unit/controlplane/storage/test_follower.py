"""What follows changes applies each of them, in rounds that do not overlap."""

import asyncio
from collections.abc import AsyncIterator, Collection

import pytest

from controlplane.domain.errors import StoreError
from controlplane.storage.engine.changes import Change, Changes, Topic
from controlplane.storage.engine.follower import FIRST_RETRY, Follower
from tests.support.fake_clock import FakeClock, until_idle

ONE = Change(Topic.TOKEN, ("one",))
TWO = Change(Topic.TOKEN, ("two",))


class Reader:
    """Notes the changes that it is asked to apply; fails or waits as a test sets it."""

    def __init__(self) -> None:
        self.rounds: list[list[Change]] = []
        self.errors: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.began = asyncio.Event()

    async def apply(self, changed: Collection[Change]) -> None:
        self.rounds.append(list(changed))
        self.began.set()
        await self.gate.wait()
        if self.errors:
            raise self.errors.pop()


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
async def reader() -> Reader:
    return Reader()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def follower(
    changes: Changes, reader: Reader, clock: FakeClock
) -> AsyncIterator[Follower[Change]]:
    made = Follower("tokens", reader.apply, clock)
    changes.subscribe({Topic.TOKEN}, made.note)
    yield made
    await made.close()


async def test_changes_of_a_moment_are_applied_together_and_once(
    changes: Changes, reader: Reader, follower: Follower[Change]
) -> None:
    changes.publish([ONE, TWO, ONE])
    await follower.caught_up()
    assert reader.rounds == [[ONE, TWO]]


async def test_other_topics_are_not_followed(
    changes: Changes, reader: Reader, follower: Follower[Change]
) -> None:
    changes.publish([Change(Topic.REGION, ("r",))])
    await follower.caught_up()
    assert reader.rounds == []


async def test_change_during_a_round_is_applied_by_the_next(
    changes: Changes, reader: Reader, follower: Follower[Change]
) -> None:
    reader.gate.clear()
    changes.publish([ONE])
    await reader.began.wait()
    changes.publish([TWO])
    waiting = asyncio.create_task(follower.caught_up())
    reader.gate.set()
    await waiting
    assert reader.rounds == [[ONE], [TWO]]


async def test_failed_round_is_repeated_with_what_has_changed_since(
    changes: Changes, reader: Reader, follower: Follower[Change], clock: FakeClock
) -> None:
    reader.errors = [StoreError("as scripted")]
    changes.publish([ONE])
    await follower.caught_up()
    changes.publish([TWO])
    waiting = asyncio.create_task(follower.caught_up())
    await clock.advance(FIRST_RETRY)
    await waiting
    assert reader.rounds == [[ONE], [ONE, TWO]]


async def test_change_right_after_a_round_begins_another(
    changes: Changes, reader: Reader, follower: Follower[Change]
) -> None:
    changes.publish([ONE])
    await follower.caught_up()
    changes.publish([TWO])
    await follower.caught_up()
    assert reader.rounds == [[ONE], [TWO]]


async def test_wait_ends_with_the_end(
    changes: Changes, reader: Reader, follower: Follower[Change]
) -> None:
    reader.gate.clear()
    changes.publish([ONE])
    await reader.began.wait()
    changes.publish([TWO])
    waiting = asyncio.create_task(follower.caught_up())
    await until_idle()
    await follower.close()
    await waiting
    await follower.caught_up()


async def test_nothing_is_applied_after_the_end(
    changes: Changes, reader: Reader, follower: Follower[Change]
) -> None:
    await follower.close()
    changes.publish([ONE])
    await until_idle()
    assert reader.rounds == []
