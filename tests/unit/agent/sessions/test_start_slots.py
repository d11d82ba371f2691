from collections.abc import AsyncIterator

import pytest

from agent.domain.errors import StartQueueFullError
from agent.sessions.reservations import StartSlots
from tests.support.fake_clock import until_idle
from tiltyard.runtime.tasks import TaskOwner


class Starts:
    """Starts that take slots; each is of the account in its first letter."""

    def __init__(self) -> None:
        self.tasks = TaskOwner[None]()
        self.begun: list[str] = []

    async def ask(self, slots: StartSlots, names: str) -> list[str]:
        """Queue starts; return those that have begun by now."""
        first = len(self.begun)
        for name in names.split():
            self.tasks.start(self._begin(slots, name), name)
        await until_idle()
        return self.begun[first:]

    async def end(self, slots: StartSlots, account: str) -> None:
        """End a start of an account."""
        slots.release(account)
        await until_idle()

    async def _begin(self, slots: StartSlots, name: str) -> None:
        await slots.acquire(name[0])
        self.begun.append(name)


@pytest.fixture
async def starts() -> AsyncIterator[Starts]:
    starts = Starts()
    yield starts
    await starts.tasks.close()


async def test_starts_are_limited_and_accounts_served_in_rotation(starts: Starts) -> None:
    slots = StartSlots(2)
    assert await starts.ask(slots, "a1 a2 b1 b2 a3 c1") == ["a1", "b1"]
    for account in ("a", "b", "a", "c"):
        await starts.end(slots, account)
    assert starts.begun == ["a1", "b1", "a2", "b2", "c1", "a3"]


@pytest.mark.parametrize(
    ("total", "share"),
    [
        (1, 1),
        (2, 1),
        (3, 2),
        (8, 4),
    ],
)
async def test_one_account_holds_at_most_half_of_the_slots(
    starts: Starts, total: int, share: int
) -> None:
    slots = StartSlots(total)
    assert len(await starts.ask(slots, "a1 " * 2 * total)) == share
    for _ in range(total):
        await starts.end(slots, "a")
        assert slots.held("a") == share
    assert len(starts.begun) == share + total


async def test_start_beyond_the_share_of_its_account_delays_no_other(starts: Starts) -> None:
    slots = StartSlots(8)
    await starts.ask(slots, "a1 " * 8)
    assert await starts.ask(slots, "b1 b2 b3") == ["b1", "b2"]
    assert await starts.ask(slots, "c1 c2") == ["c1"]
    assert slots.held("a") == 4


async def test_released_slot_stays_free_if_only_accounts_beyond_their_share_wait(
    starts: Starts,
) -> None:
    slots = StartSlots(8)
    await starts.ask(slots, "a1 " * 8)
    await starts.ask(slots, "b1")
    await starts.end(slots, "b")
    assert slots.held("a") == 4
    assert await starts.ask(slots, "b2") == ["b2"]


async def test_start_that_waits_too_long_is_refused(starts: Starts) -> None:
    slots = StartSlots(1)
    assert await starts.ask(slots, "a1") == ["a1"]
    with pytest.raises(StartQueueFullError):
        await slots.acquire("b", within=0.01)
    await starts.end(slots, "a")
    assert await starts.ask(slots, "c1") == ["c1"]


@pytest.mark.parametrize(
    ("total", "spare"),
    [
        (1, 1),
        (4, 2),
        (5, 2),
        (8, 3),
    ],
)
async def test_standbys_leave_slots_to_sessions_of_their_account(total: int, spare: int) -> None:
    slots = StartSlots(total)
    for _ in range(spare):
        assert slots.has_spare("a")
        assert slots.take("a")
    assert not slots.has_spare("a")


async def test_standbys_of_an_account_wait_for_its_own_sessions_only(starts: Starts) -> None:
    slots = StartSlots(8)
    await starts.ask(slots, "a1 " * 5)
    assert not slots.has_spare("a")
    assert slots.has_spare("b")
