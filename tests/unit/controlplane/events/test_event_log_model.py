"""Readers of the log against a model, while several processes' worth of writers append to it.

Each reader must get the events of its filter once each, in the order of their numbers, whenever it
reads, however much at a time, and if it begins again where another one has stopped.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from controlplane.domain.access.audit import ITSELF
from controlplane.domain.events.accounts import TokenRevoked
from controlplane.domain.events.filters import EventFilter
from controlplane.domain.events.positions import Position
from controlplane.events import recent_events
from controlplane.events.event_log import EventLog
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.accounting.event_reading import read_after
from tests.support.controlplane.session_events import starting
from tests.support.controlplane.transactions import opened
from tiltyard.runtime.clock import SystemClock

WRITERS = 8
TRANSACTIONS = 60  # Of each writer
ACCOUNTS = ("alice", "bob", "carol")

FILTERS = [
    EventFilter(None, is_operator=True),
    EventFilter(None, is_operator=True, kinds=("token.*",)),
    *(EventFilter(account) for account in ACCOUNTS),
    EventFilter("alice", kinds=("session.*",)),
    EventFilter("bob", session="s3"),
]


def append(db: Database, account: str, names: list[str]) -> None:
    for name in names:
        db.append(starting(account, name, 1000.0))
        db.append(TokenRevoked(account, name, ITSELF, 1000.0, revoked_with=name))


async def write(store: Store, random: Random) -> None:
    for _ in range(TRANSACTIONS):
        names = [f"s{random.randrange(5)}" for _ in range(random.randrange(1, 4))]
        await store.run(append, random.choice(ACCOUNTS), names)
        for _ in range(random.randrange(3)):
            await asyncio.sleep(0)


@dataclass
class Reader:
    """Follows the log until the last event, and begins again at random."""

    wanted: EventFilter
    random: Random
    got: list[int] = field(default_factory=list)

    async def follow(
        self, logs: list[EventLog], after: Position, last: asyncio.Future[int]
    ) -> None:
        """Read until the number of the last event is known and reached."""
        log = logs[0]
        while not (last.done() and after.number >= last.result()):
            if self.random.random() < 0.2:  # It begins again, after others have gone on
                log = self.random.choice(logs)
                for _ in range(self.random.randrange(200)):
                    await asyncio.sleep(0)
            batch = await log.read(self.wanted, after, self.random.choice([1, 7, 500]))
            self.got += [event.position.number for event in batch.events]
            after = await log.changed(self.wanted.account, batch.after, wait=0.05)


@pytest.mark.parametrize("seed", range(3))
async def test_no_reader_misses_doubles_or_disorders_an_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(recent_events, "MOST_EVENTS", 40)
    random = Random(seed)
    path = tmp_path / "db"
    async with opened(path) as one, opened(path) as other:
        other.changes.subscribe({Topic.EVENT}, lambda change: one.changes.publish([change]))
        logs = [EventLog(one, SystemClock()), EventLog(one, SystemClock())]
        start = await logs[0].newest()
        last: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        readers = [Reader(each, Random(random.random())) for each in FILTERS * 3]
        async with asyncio.TaskGroup() as group:
            for reader in readers:
                group.create_task(reader.follow(logs, start, last))
            async with asyncio.TaskGroup() as writing:
                for number in range(WRITERS):
                    store = (one, other)[number % 2]
                    writing.create_task(write(store, Random(random.random())))
            last.set_result((await logs[0].newest()).number)
        for reader in readers:
            everything = await one.read(read_after, reader.wanted, start, 10_000)
            assert reader.got == [event.position.number for event in everything.events]
            assert reader.got
        for log in logs:
            await log.close()
