"""Readers of events while a control plane is killed, or its clock is set back."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import aiohttp
import pytest

from controlplane.app.control_plane import ControlPlane
from controlplane.domain.events.filters import EventFilter
from controlplane.domain.events.positions import Position
from controlplane.storage.tables.accounting.event_reading import EventBatch, read_after
from tests.controlplane.event_writer import LAST, config_of
from tests.faults.plugin import Rounds
from tests.support.controlplane.event_reader import NDJSON, is_free, opened, reserve
from tests.support.controlplane.system import System, eventually
from tests.support.controlplane.transactions import blocked
from tests.support.controlplane.transactions import opened as opened_store
from tests.support.harness import free_port

PAUSE = 0.02  # Seconds until a reader connects again


@dataclass
class Follower:
    """Follows the events of an account, and connects again whatever happens."""

    url: str
    token: str
    query: str
    ids: list[str] = field(default_factory=list)
    after: str = "1-0"

    async def run(self) -> None:
        """Follow until the last event."""
        headers = {"Authorization": f"Bearer {self.token}", "Accept": NDJSON}
        async with aiohttp.ClientSession(headers=headers) as client:
            while True:
                try:
                    if await self._follow(client):
                        return
                except (aiohttp.ClientError, json.JSONDecodeError):
                    pass  # A line that was cut off is no event
                await asyncio.sleep(PAUSE)

    async def _follow(self, client: aiohttp.ClientSession) -> bool:
        query = f"{self.query}&after={self.after}"
        async with client.get(f"{self.url}/event?{query}", raise_for_status=True) as response:
            async for line in response.content:
                event = json.loads(line)
                self.after = event["id"]
                if not event["type"].startswith("stream."):
                    self.ids.append(event["id"])
                    if event["object"] == LAST:
                        return True
        return False


@asynccontextmanager
async def writing(folder: Path, port: int, commits: int) -> AsyncIterator[Process]:
    """Run a control plane that is killed after a commit, 0 for never."""
    command = [sys.executable, "-m", "tests.controlplane.event_writer", str(folder), str(port)]
    process = await asyncio.create_subprocess_exec(*command, str(commits))
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def stored(database: Path) -> list[str]:
    """Read the ids of all events of sessions of an account, a part of the log at a time."""
    wanted = EventFilter("alice", kinds=("session.*",))
    found = []
    async with opened_store(database) as store:
        batch = EventBatch((), Position(1, 0), more=True)
        while batch.more:
            batch = await store.read(read_after, wanted, batch.after, 10_000)
            found += [str(event.position) for event in batch.events]
    return found


@pytest.mark.part_alone
@pytest.mark.timeout(900)
async def test_f36_no_reader_misses_an_event_that_a_killed_control_plane_has_committed(
    tmp_path: Path, rounds: Rounds, chance: Random
) -> None:
    """It is killed between a COMMIT and the wake-up of its readers."""
    port = free_port()
    config = config_of(tmp_path / "state", port)
    tokens = (await ControlPlane(config).initialise(("alice", "bob"))).accounts
    url = f"http://127.0.0.1:{port}"
    followers = [Follower(url, tokens["alice"], "kind=session.*") for _ in range(3)]
    following = [asyncio.create_task(each.run(), name="follower") for each in followers]
    for _ in range(rounds(3, 50)):
        async with writing(config.state_dir, port, chance.randrange(20, 120)) as process:
            assert await process.wait() == -signal.SIGKILL
    async with writing(config.state_dir, port, 0):
        await asyncio.gather(*following)
    ids = await stored(config.database)
    assert len(ids) > 100
    for follower in followers:
        assert follower.ids == ids


async def test_long_read_of_the_database_delays_no_reader(system: System) -> None:
    async with (
        opened_store(system.config.database) as other,
        blocked(other.read, lambda db: db.execute("SELECT count(*) FROM event").fetchone()),
        opened(system, "kind=session.*") as reader,
    ):
        for number in range(50):
            await reserve(system, str(number))
        assert await reader.objects(50) == [str(number) for number in range(50)]


async def test_order_is_that_of_numbers_after_the_clock_was_set_back(system: System) -> None:
    times = iter([5000.0, 1400.0, 5001.0])
    async with opened(system, "kind=session.*") as reader:
        for name in ("a", "b", "c"):
            ahead = system.clock.time() + next(times) - 5000.0
            await reserve(system, name, now=ahead)
        assert await reader.objects(3) == ["a", "b", "c"]
    found = await system.read("/event?kind=session.*")
    assert [event["object"] for event in found["events"]] == ["a", "b", "c"]
    earlier = [event["time"] for event in found["events"]]
    assert earlier[1] < earlier[0] - 3_500_000


async def test_memory_does_not_grow_with_readers_that_come_and_go(system: System) -> None:
    log = system.control_plane.event_log
    for _ in range(20):
        async with opened(system, "kind=session.*") as reader:
            await reserve(system, "a")
            await reader.objects(1)
    await eventually(lambda: is_free(system))
    assert log.waiting("alice") == 0
    assert log.waiting(None) == 0
