"""An account that holds all that it may of a host leaves room for the others on it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.domain.containers.engine import ContainerSpec
from tests.flow.whole import Whole
from tests.support.controlplane.system import Answer, eventually

SLOTS = 8
SHARE = SLOTS // 2
STARTS = 24
ROOM: dict[str, Any] = {"cpu": 1000, "ram": 2**20, "start_slots": SLOTS}
UNLIMITED: dict[str, Any] = {"start_rate": 1e6, "start_burst": 10**6}


class SlowImage:
    """Containers of one image, which the engine is busy creating until `created` is set."""

    def __init__(self, whole: Whole, image: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.created = asyncio.Event()
        self.under_way = 0
        self._image = image
        self._create = whole.engine.create
        monkeypatch.setattr(whole.engine, "create", self._slowly)

    async def _slowly(self, spec: ContainerSpec) -> str:
        if spec.image == self._image:
            self.under_way += 1
            await self.created.wait()
            self.under_way -= 1
        return await self._create(spec)


@pytest.fixture
async def whole(tmp_path: Path) -> AsyncIterator[Whole]:
    async with Whole(tmp_path, agent=ROOM, start_timeout=60.0, **UNLIMITED) as whole:
        yield whole


def _start(whole: Whole, account: str, count: int = STARTS) -> list[asyncio.Task[Answer]]:
    return [asyncio.create_task(whole.start(account=account)) for _ in range(count)]


@pytest.fixture
async def slow(whole: Whole, monkeypatch: pytest.MonkeyPatch) -> SlowImage:
    slow = SlowImage(whole, await whole.make_game(), monkeypatch)
    await whole.make_game(account="bob", repository="studio/other")
    return slow


async def test_starts_of_a_slow_image_leave_start_slots_to_other_accounts(
    whole: Whole, slow: SlowImage
) -> None:
    of_alice = _start(whole, "alice")
    await eventually(lambda: slow.under_way == SHARE)
    answers = await asyncio.gather(*_start(whole, "bob"))
    assert {answer.status for answer in answers} == {201}
    assert slow.under_way == SHARE
    slow.created.set()
    assert {answer.status for answer in await asyncio.gather(*of_alice)} == {201}


async def test_unanswered_starts_hold_their_slots_while_the_host_creates_containers(
    whole: Whole, slow: SlowImage
) -> None:
    """Else the control plane would send the host more starts than it can begin."""
    starts = whole.control_plane.starts
    starts.start_timeout = 2.5
    answers = await asyncio.gather(*_start(whole, "alice", SHARE))
    assert {answer.status for answer in answers} == {420}
    starts.start_timeout = 60.0
    link = whole.link(whole.host.name)
    again = _start(whole, "alice", 1)
    await eventually(lambda: sum(starts.queue.waiting().values()) == 1)
    assert not link.state.has_start_slot("alice")
    answers = await asyncio.gather(*_start(whole, "bob"))
    assert {answer.status for answer in answers} == {201}
    assert not again[0].done()
    slow.created.set()
    assert (await again[0]).status == 201
    await eventually(lambda: link.state.has_start_slot("alice"))
