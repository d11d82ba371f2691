"""A host that reports random values, valid by their types, while two accounts work elsewhere."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from controlplane.domain.errors import AgentExcessError
from controlplane.fleet.host import watch
from controlplane.settings.model import Config
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.controlplane.system import System, eventually
from tests.support.controlplane.wild_messages import WildMessages
from tests.support.leaks import resident_bytes
from tiltyard.agent.v1 import agent_pb2
from tiltyard.runtime import tasks

REPORTS = 400
PART = 50  # Reports that are waited for at once, so that a slow machine has more time
PAUSE = 0.01  # Seconds until a faulty host is followed again
MOST_MEMORY = 64 * 1024 * 1024  # Bytes that the process may grow by
ACCOUNTS = ("alice", "bob")
GATE_SEEDS = 2


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(watch.PAUSES, AgentExcessError, PAUSE)
    monkeypatch.setattr(watch, "MAX_DIAL_BACK_OFF", PAUSE)
    monkeypatch.setattr(tasks, "FAULT_PAUSE", PAUSE)


class WildAgent(FakeAgent):
    """Sends wild reports until `reports` have been sent; knows the sessions of `others`."""

    others: Sequence[FakeAgent] = ()
    reports = 0
    sent = 0
    messages: WildMessages
    random: Random

    def begin(self, seed: int, others: Sequence[FakeAgent], reports: int) -> None:
        """Send this number of wild reports from now on."""
        self.others = others
        self.random = Random(seed)
        self.messages = WildMessages(seed, self._texts, self._tickets)
        self.reports = reports
        self.drop_watch()

    async def until_sent(self, least: int) -> None:
        """Wait until this number of wild reports has been sent."""
        await eventually(lambda: self.sent >= least)

    async def Watch(  # noqa: N802
        self, request: agent_pb2.WatchRequest, context: Any
    ) -> AsyncIterator[agent_pb2.WatchResponse]:
        if self.sent < self.reports:
            yield self._stamped(agent_pb2.WatchResponse(snapshot_begin=agent_pb2.SnapshotBegin()))
        while self.sent < self.reports:
            self.sent += 1
            yield self._wild_report()
        async for response in super().Watch(request, context):
            yield response

    def _wild_report(self) -> agent_pb2.WatchResponse:
        response = agent_pb2.WatchResponse(incarnation=self.incarnation, sequence=self.sent)
        kind = self.random.choice(("host", "sessions", "sessions", "images", "snapshot_end"))
        if kind == "host":
            response.host.CopyFrom(self._host())
            self.messages.fill(response.host)
            response.host.format = 1
        elif kind == "sessions":
            for _ in range(self.random.randrange(1, 20)):
                self._add_session(response.sessions)
        elif kind == "images":
            self.messages.fill(response.images)
        else:
            response.snapshot_end.reconciled = self.random.random() < 0.5
        return response

    def _add_session(self, batch: agent_pb2.SessionBatch) -> None:
        """Add a session that is like one of another host in some of its fields."""
        session: Any = batch.sessions.add()
        wild = agent_pb2.Session()
        self.messages.fill(wild)
        known = [session for agent in self.others for session in agent.sessions.values()]
        if known:
            session.CopyFrom(self.random.choice(known))
        for field, _ in wild.ListFields():
            if self.random.random() < 0.5:
                session.ClearField(field.name)
        session.MergeFrom(wild)
        session.format = 1

    def _texts(self) -> list[str]:
        texts = [*ACCOUNTS, "game", "local", "elsewhere", "a0", "1.2.3.4"]
        for agent in self.others:
            texts += agent.images
            texts += agent.pools
            for session in agent.sessions.values():
                texts += [session.internal_id, session.identity.session_id]
        return texts

    def _tickets(self) -> list[bytes]:
        known = (session for agent in self.others for session in agent.sessions.values())
        return [session.identity.ticket for session in known]


class Beside(System):
    """Two hosts in `local`, and a wild one elsewhere."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(folder, agents=2, **settings)
        self.wild = WildAgent(folder, "wild")
        self.agents.append(self.wild)

    @property
    def config(self) -> Config:
        config = super().config
        *others, wild = config.agents
        elsewhere = wild.model_copy(update={"region": "elsewhere"})
        return config.model_copy(update={"agents": (*others, elsewhere)})


class Work:
    """What an account does again and again, with the statuses of the answers."""

    def __init__(self, system: System, account: str) -> None:
        self._system = system
        self._account = account
        self._numbers = count()
        self.answered: Counter[tuple[str, int]] = Counter()

    async def go_on(self, until: asyncio.Event) -> None:
        """Start, read and stop sessions until the event."""
        while not until.is_set():
            session = f"{self._account}-{next(self._numbers)}"
            made = await self._system.start(account=self._account, id=session)
            self.answered["start", made.status] += 1
            await self._call("GET", f"/session/{session}", "read")
            await self._call("GET", "/session", "list")
            await self._call("DELETE", f"/session/{session}", "stop")

    async def _call(self, method: str, path: str, what: str) -> None:
        answer = await self._system.call(method, path, account=self._account)
        self.answered[what, answer.status] += 1


@pytest.mark.timeout(200)
@pytest.mark.system(kind=Beside, start_rate=1e6, start_burst=10**6, start_timeout=60.0)
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=[pytest.mark.thorough] if seed >= GATE_SEEDS else [])
        for seed in range(30)
    ],
)
async def test_accounts_are_served_whatever_another_host_reports(
    system: Beside, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    for account in ACCOUNTS:
        await system.make_application(tag=None, account=account, regions=["local"])
        await system.enable("v1", account=account, pulled_by=system.agents[:2])
    stopping = asyncio.Event()
    work = [Work(system, account) for account in ACCOUNTS]
    memory = resident_bytes(os.getpid())
    async with asyncio.TaskGroup() as group:
        for of_account in work:
            group.create_task(of_account.go_on(stopping))
        system.wild.begin(seed, system.agents[:2], REPORTS)
        for least in range(PART, REPORTS + 1, PART):
            await system.wild.until_sent(least)
        system.wild.pools.clear()  # it is installed again
        system.wild.change_host(version="sound")
        await system.has_reported("wild", version="sound")
        stopping.set()
    for of_account in work:
        assert set(of_account.answered) == {
            ("start", 201),
            ("read", 200),
            ("list", 200),
            ("stop", 204),
        }
    assert resident_bytes(os.getpid()) - memory < MOST_MEMORY
    # What gRPC logs is of the fake agents' servers.
    ours = [record for record in caplog.records if not record.name.startswith("grpc.")]
    unexpected = [record for record in ours if record.exc_info]
    assert [record.getMessage() for record in unexpected] == []
