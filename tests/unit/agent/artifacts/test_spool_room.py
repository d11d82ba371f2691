import asyncio
from contextlib import AsyncExitStack, suppress

import pytest

from agent.artifacts.spool_room import SpoolRoom
from agent.domain.errors import ReadersBusyError

LARGEST = 100


def room(*, patience: float = 0.0, **limits: int) -> SpoolRoom:
    plain = {"total_bytes": 10**9, "largest_bytes": LARGEST, **limits}
    return SpoolRoom(**plain, patience=patience)


async def free(room: SpoolRoom, container: str) -> None:
    """Take room for a container, and return it."""
    async with room.taken(container, container):
        pass


async def busy(room: SpoolRoom, container: str, account: str = "") -> str:
    with pytest.raises(ReadersBusyError) as error:
        async with room.taken(container, account or container):
            pass
    return error.value.cause


async def test_packs_one_archive_per_container() -> None:
    rooms = room()
    async with rooms.taken("a", "a") as share:
        assert await busy(rooms, "a") == "another one of this session is being packed"
        await free(rooms, "b")
        rooms.packed(share, 1)
        await free(rooms, "a")


async def test_readers_of_one_session_leave_room_for_others() -> None:
    rooms = room(most_each=2)
    async with AsyncExitStack() as stack:
        for _ in range(2):
            rooms.packed(await stack.enter_async_context(rooms.taken("a", "a")), 1)
        assert await busy(rooms, "a") == "2 of this session are being fetched"
        await free(rooms, "b")
    await free(rooms, "a")


async def test_limits_archives_being_packed() -> None:
    rooms = room(most_packed=2)
    async with rooms.taken("a", "a") as share, rooms.taken("b", "b"):
        assert await busy(rooms, "c") == "2 of other sessions are being packed"
        rooms.packed(share, 1)
        await free(rooms, "c")


async def test_limits_archives_being_fetched() -> None:
    rooms = room(most_fetched=2)
    async with rooms.taken("a", "a") as one, rooms.taken("b", "b") as other:
        rooms.packed(one, 0)
        rooms.packed(other, 0)
        assert await busy(rooms, "c") == "2 are being fetched from this host"


@pytest.mark.parametrize(
    ("limits", "size"),
    [
        ({"most_fetched": 8}, 0),
        ({"most_packed": 8}, None),
        ({"total_bytes": 800}, LARGEST),
    ],
)
async def test_account_takes_half_of_the_rest(limits: dict[str, int], size: int | None) -> None:
    """The first account gets 4 of 8 slots, the next one 2, and one slot always remains."""
    rooms = room(**limits)

    async def take(container: str, account: str) -> None:
        share = await stack.enter_async_context(rooms.taken(container, account))
        if size is not None:
            rooms.packed(share, size)

    async with AsyncExitStack() as stack:
        for account, most in (("first", 4), ("second", 2), ("third", 1), ("fourth", 1)):
            for number in range(most):
                await take(f"{account}-{number}", account)
            if account != "fourth":
                refusal = f"the account fetches {most}, the rest is reserved for other accounts"
                assert await busy(rooms, "one more", account) == refusal
        assert "for other accounts" not in await busy(rooms, "one more", "fifth")


async def test_reserves_largest_size_until_packed() -> None:
    rooms = room(total_bytes=2 * LARGEST)
    async with rooms.taken("a", "a") as one, rooms.taken("b", "b") as other:
        full = "artifacts in transit fill artifact_spool_bytes"
        assert await busy(rooms, "c") == full
        rooms.packed(one, LARGEST // 2)
        assert await busy(rooms, "c") == full
        rooms.packed(other, LARGEST // 2)
        await free(rooms, "c")
    async with rooms.taken("a", "a"), rooms.taken("b", "b"):
        pass


async def test_waiters_continue_when_there_is_room() -> None:
    rooms = room(patience=30.0)
    done = asyncio.Event()

    async def waits() -> None:
        async with rooms.taken("a", "a"):
            done.set()

    async with rooms.taken("a", "a"):
        waiter = asyncio.create_task(waits())
        await asyncio.sleep(0)
        assert not done.is_set()
    await waiter


async def test_cancelled_or_failed_fetch_frees_its_room() -> None:
    rooms = room(patience=30.0)
    async with rooms.taken("a", "a"):
        waiter = asyncio.create_task(busy(rooms, "a"))
        await asyncio.sleep(0)
        waiter.cancel()
        with suppress(asyncio.CancelledError):
            await waiter
    with pytest.raises(ZeroDivisionError):
        async with rooms.taken("a", "a"):
            raise ZeroDivisionError
    await free(rooms, "a")
