"""Slots for starts: limited, fair between accounts, and no wait that would be in vain."""

import asyncio

import pytest

from agent.domain.errors import StartQueueFullError
from agent.sessions.start_slots import StartSlots
from tests.support.fake_clock import settle
from tests.support.fakes import FakeClock


class Line:
    """Starts that ask for slots, and the order in which they get them."""

    def __init__(self, slots: StartSlots) -> None:
        self.slots = slots
        self.begun: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def ask(self, names: str) -> list[asyncio.Task[None]]:
        """Have starts ask, whose account is their first letter."""
        tasks = [asyncio.create_task(self._start(name)) for name in names.split()]
        await settle()
        return tasks

    async def release(self, times: int = 1) -> None:
        for _ in range(times):
            self.slots.release()
            await settle()

    async def _start(self, name: str) -> None:
        await self.slots.acquire(name[0])
        self.begun.append(name)


@pytest.fixture
def line(clock: FakeClock) -> Line:
    return Line(StartSlots(1, clock))


async def test_concurrent_starts_are_limited(clock: FakeClock) -> None:
    line = Line(StartSlots(2, clock))
    await line.ask("a1 a2 a3")
    assert line.begun == ["a1", "a2"]
    await line.release()
    assert line.begun == ["a1", "a2", "a3"]
    await line.release(2)
    await line.ask("a4")
    assert line.begun[-1] == "a4"


async def test_accounts_take_turns(line: Line) -> None:
    await line.ask("a1 a2 a3 a4 b1 b2 c1")
    await line.release(6)
    assert line.begun == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]


async def test_who_gives_up_lets_the_next_begin(line: Line) -> None:
    _, second, third = await line.ask("a1 a2 a3")
    second.cancel()
    await line.release()
    await third
    assert line.begun == ["a1", "a3"]


async def test_a_turn_that_comes_as_its_start_gives_up_goes_to_the_next(line: Line) -> None:
    _, second, _ = await line.ask("a1 a2 a3")
    line.slots.release()
    second.cancel()
    await settle()
    assert line.begun == ["a1", "a3"]


async def test_a_slot_that_comes_free_as_all_give_up_is_there_for_the_next(line: Line) -> None:
    _, second = await line.ask("a1 a2")
    second.cancel()
    line.slots.release()
    await line.slots.acquire("b", within=5)  # before a2 has left the line
    await line.ask("c1")
    await line.release()
    assert line.begun == ["a1", "c1"]


async def test_who_waits_too_long_is_refused_and_leaves_the_line(line: Line) -> None:
    await line.ask("a1")
    with pytest.raises(StartQueueFullError):
        await line.slots.acquire("b", within=0.01)
    await line.release()
    await line.ask("c1")
    assert line.begun == ["a1", "c1"]


async def test_who_could_not_begin_in_time_is_refused_at_once(
    line: Line, clock: FakeClock
) -> None:
    await line.ask("a1 a2 a3")
    await clock.advance(300)
    await line.release()  # a start takes five minutes
    with pytest.raises(StartQueueFullError):
        await line.slots.acquire("a", within=500)
    waits = asyncio.create_task(line.slots.acquire("b", within=700))  # behind a3
    await settle()
    await line.release(2)
    await waits
    assert line.begun == ["a1", "a2", "a3"]


async def test_a_spare_slot_is_one_that_no_player_misses(clock: FakeClock) -> None:
    line = Line(StartSlots(4, clock))
    for _ in range(2):
        assert line.slots.has_spare
        line.slots.take_spare()
    assert not line.slots.has_spare
    await line.ask("a1 a2 a3")
    assert line.begun == ["a1", "a2"]
    await line.release()
    assert line.begun == ["a1", "a2", "a3"]
    await line.release(4)


async def test_nothing_is_to_spare_while_somebody_waits(clock: FakeClock) -> None:
    line = Line(StartSlots(1, clock))
    spare = [line.slots.has_spare]  # of one slot, that one
    await line.ask("a1 a2")
    for _ in range(2):
        spare.append(line.slots.has_spare)
        await line.release()
    assert [*spare, line.slots.has_spare] == [True, False, False, True]
