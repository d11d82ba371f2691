"""What waits while a batch is under way forms the next one."""

import asyncio

import pytest

from tests.support.fake_clock import until_idle
from tiltyard.runtime.batches import Batches


class Work:
    """Batches of numbers, doubled once `go_on` is set; a negative one fails its batch."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []
        self.go_on = asyncio.Event()
        self.batches = Batches(self._double, "doubling")

    async def _double(self, batch: list[int]) -> list[int]:
        self.seen.append(batch)
        await self.go_on.wait()
        if min(batch) < 0:
            raise ValueError("negative")
        return [2 * number for number in batch]

    def add(self, number: int) -> asyncio.Task[int]:
        return asyncio.create_task(self.batches.add(number))


async def test_each_item_gets_its_result_and_what_waits_goes_together() -> None:
    work = Work()
    tasks = [work.add(1)]
    await until_idle()
    tasks += [work.add(number) for number in (2, 3, 4)]
    await until_idle()
    work.go_on.set()
    assert await asyncio.gather(*tasks) == [2, 4, 6, 8]
    assert work.seen == [[1], [2, 3, 4]]
    assert await work.batches.add(5) == 10  # at once after the last batch
    await work.batches.finish()


async def test_error_of_a_batch_reaches_its_items_alone() -> None:
    work = Work()
    first = work.add(1)
    await until_idle()
    failed = [work.add(-1), work.add(2)]
    await until_idle()
    work.go_on.set()
    assert await first == 2
    for item in failed:
        with pytest.raises(ValueError, match="negative"):
            await item
    assert await work.batches.add(3) == 6


async def test_item_of_a_cancelled_waiter_is_done() -> None:
    work = Work()
    tasks = [work.add(number) for number in (1, 2)]
    await until_idle()
    tasks[0].cancel()
    work.go_on.set()
    assert await tasks[1] == 4
    assert work.seen == [[1, 2]]
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
