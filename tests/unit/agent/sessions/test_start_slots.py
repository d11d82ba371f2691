import asyncio

import pytest

from agent.domain.errors import StartQueueFullError
from agent.sessions.reservations import StartSlots
from tests.support.fake_clock import until_idle


async def _ask(slots: StartSlots, names: str) -> list[str]:
    """Queue starts of the account in their first letter; returns the list of begun ones."""
    begun: list[str] = []

    async def start(name: str) -> None:
        await slots.acquire(name[0])
        begun.append(name)

    starts = [asyncio.create_task(start(name)) for name in names.split()]
    await asyncio.wait(starts, timeout=0)
    await until_idle()
    return begun


async def test_starts_are_limited_and_accounts_served_in_rotation() -> None:
    slots = StartSlots(2)
    begun = await _ask(slots, "a1 a2 a3 a4 b1 b2 c1")
    assert begun == ["a1", "a2"]
    for _ in range(5):
        slots.release()
        await until_idle()
    assert begun == ["a1", "a2", "a3", "b1", "c1", "a4", "b2"]


async def test_start_that_waits_too_long_is_refused() -> None:
    slots = StartSlots(1)
    begun = await _ask(slots, "a1")
    with pytest.raises(StartQueueFullError):
        await slots.acquire("b", within=0.01)
    slots.release()
    begun += await _ask(slots, "c1")
    assert begun == ["a1", "c1"]


@pytest.mark.parametrize(
    ("total", "spare"),
    [
        (1, 1),
        (4, 2),
        (5, 2),
    ],
)
async def test_half_of_the_slots_are_spare_while_no_start_waits(total: int, spare: int) -> None:
    slots = StartSlots(total)
    for _ in range(spare):
        assert slots.has_spare
        assert slots.take()
    assert not slots.has_spare
    await _ask(slots, "a1 " * total)
    for _ in range(spare):
        assert not slots.has_spare
        slots.release()
