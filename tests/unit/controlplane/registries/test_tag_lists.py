"""Tag lists: order, sharing and caching."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from itertools import pairwise
from unittest import mock

import pytest

from controlplane.domain.applications.registries import Registry
from controlplane.domain.errors import RegistryUnavailableError
from controlplane.registries import tag_lists
from controlplane.registries.tag_lists import TagLists, natural_order
from tests.support.fake_clock import until_idle

HUB = Registry("hub", "hub.example", ())


class Source:
    """Reads lists when `unblocked` is set, and records the reads; has its own clock."""

    def __init__(self) -> None:
        self.read: list[tuple[Registry, str]] = []
        self.tags = ["v1", "v10", "v9"]
        self.fails = False
        self.unblocked = asyncio.Event()
        self.unblocked.set()
        self.time = 1000.0
        self.lists = TagLists(self._read, lambda: self.time)

    async def _read(self, registry: Registry, repository: str, _: str) -> list[str]:
        self.read.append((registry, repository))
        await self.unblocked.wait()
        if self.fails:
            raise RegistryUnavailableError(registry.name, "it fails")
        return self.tags


@pytest.fixture
async def source() -> AsyncIterator[Source]:
    source = Source()
    yield source
    await source.lists.close()


def test_natural_order_of_versions() -> None:
    ordered = [
        "1.2",
        "1.9",
        "1.10",
        "1.10.1",
        "2",
        "007.1",
        "7.2",
        "9" * 100,
        "1" + "0" * 100,
        "latest",
        "v",
        "v0",
        "v00.1",
        "v1.9",
        "v1.10",
        "v1.10-rc9",
        "v1.11",
        "v" + "9" * 100,
        "v-1",
    ]
    assert sorted(random.Random(1).sample(ordered, len(ordered)), key=natural_order) == ordered
    assert all(natural_order(a) < natural_order(b) for a, b in pairwise(ordered))
    assert natural_order("v1.010") == natural_order("v01.10")


async def test_caches_a_list_briefly(source: Source) -> None:
    await source.lists.newest_first(HUB, "game", "acme")
    source.tags = ["v11"]
    source.time += 9.9
    assert len(await source.lists.newest_first(HUB, "game", "acme")) == 3
    await source.lists.newest_first(HUB, "other", "acme")
    moved = Registry("hub", "moved.example", ())
    assert await source.lists.newest_first(moved, "game", "acme") == ("v11",)
    assert source.read == [(HUB, "game"), (HUB, "other"), (moved, "game")]
    source.time += 0.1
    assert await source.lists.newest_first(HUB, "game", "acme") == ("v11",)


@mock.patch.object(tag_lists, "MAX_KEPT", 3)
async def test_limits_cached_lists(source: Source) -> None:
    for repository in ("zero", "one", "two", "three", "four", "two", "one"):
        await source.lists.newest_first(HUB, repository, "acme")
    read = [repository for _, repository in source.read]
    assert read == ["zero", "one", "two", "three", "four", "one"]


async def test_sorts_a_list_on_its_own_thread(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[str] = set()

    def order(text: str) -> str:
        threads.add(threading.current_thread().name)
        return natural_order(text)

    monkeypatch.setattr(tag_lists, "natural_order", order)
    assert await source.lists.newest_first(HUB, "game", "acme") == ("v10", "v9", "v1")
    assert [name.rpartition("_")[0] for name in threads] == ["tag lists"]


async def test_concurrent_calls_share_one_read(source: Source) -> None:
    source.unblocked.clear()
    asking = [
        asyncio.create_task(source.lists.newest_first(HUB, "game", "acme")) for _ in range(5)
    ]
    other = asyncio.create_task(source.lists.newest_first(HUB, "other", "acme"))
    while len(source.read) < 2:
        await asyncio.sleep(0)
    asking[0].cancel()  # the first caller may disconnect
    source.unblocked.set()
    found = await asyncio.gather(*asking, other, return_exceptions=True)
    assert isinstance(found.pop(0), asyncio.CancelledError)
    assert found == [("v10", "v9", "v1")] * 5
    assert source.read == [(HUB, "game"), (HUB, "other")]


async def test_failure_is_raised_to_all_callers_and_not_cached(source: Source) -> None:
    source.unblocked.clear()
    source.fails = True
    asking = [
        asyncio.create_task(source.lists.newest_first(HUB, "game", "acme")) for _ in range(2)
    ]
    await asyncio.sleep(0)
    source.unblocked.set()
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(error, RegistryUnavailableError) for error in found)
    source.fails = False
    assert len(await source.lists.newest_first(HUB, "game", "acme")) == 3
    assert len(source.read) == 2


async def test_closing_cancels_a_read(source: Source) -> None:
    source.unblocked.clear()
    asking = asyncio.create_task(source.lists.newest_first(HUB, "game", "acme"))
    while not source.read:
        await asyncio.sleep(0)
    await source.lists.close()
    await until_idle()
    assert asking.cancelled()
