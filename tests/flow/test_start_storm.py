"""Many more concurrent starts than the hosts have room for."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.controlplane.fake_agent import FakeAgent, refuse
from tests.support.controlplane.system import System, eventually

HOSTS, SLOTS, ROOM = 20, 4, 10
CALLERS = 500
ACCOUNTS = ("alice", "bob")
SECONDS = 0.05  # Seconds that a start takes on a host


class Host(FakeAgent):
    """Admits as an agent does: bounded sessions and concurrent starts."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder, name)
        self.host.start_slots, self.host.free_sessions = SLOTS, ROOM
        self.refusals = 0
        self._admitted = 0
        self.before_start = self._take

    async def _take(self, _: Any, context: Any) -> None:
        if self.starts_in_flight > SLOTS or self._admitted == ROOM:
            self.refusals += 1
            await refuse(context, "NO_CAPACITY")
        self._admitted += 1
        await asyncio.sleep(SECONDS)


@pytest.mark.slow
async def test_no_start_is_refused_while_a_host_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On any machine: a given-up start holds its room on the host for a while.
    monkeypatch.setattr("controlplane.sessions.start.CALL_SHARE", 1.0)
    monkeypatch.setattr("controlplane.fleet.host.watch.MESSAGE_TIMEOUT", 120.0)
    patient: dict[str, Any] = {
        "start_timeout": 120.0,
        "unresponsive_after": 120.0,
        "unreachable_after": 240.0,
    }
    storm = System(tmp_path, agents=0, start_rate=1e6, start_burst=10**6, **patient)
    hosts = [Host(tmp_path, f"a{number}") for number in range(HOSTS)]
    storm.agents = list(hosts)
    everybody = aiohttp.TCPConnector(limit=CALLERS)
    async with storm, aiohttp.ClientSession(connector=everybody) as storm.http:
        for account in ACCOUNTS:
            await storm.make_application(account=account, reservation={"cpu": 0.1, "ram": 1})
        calls = [storm.start(account=each) for _ in range(CALLERS // 2) for each in ACCOUNTS]
        answers = await asyncio.gather(*calls)
        started = Counter(
            account
            for account, answer in zip(ACCOUNTS * (CALLERS // 2), answers, strict=True)
            if answer.status == 201
        )
        refused = [each for each in answers if each.status != 201]
        assert started.total() == HOSTS * ROOM
        assert min(started[account] for account in ACCOUNTS) >= HOSTS * ROOM // 3
        assert {each.status for each in refused} == {420}
        assert all("no host has capacity" in each.json["details"] for each in refused)
        assert min(int(each.headers["Retry-After"]) for each in refused) >= 1
        assert {len(host.live) for host in hosts} == {ROOM}
        assert max(host.most_starts_in_flight for host in hosts) <= SLOTS
        assert sum(host.refusals for host in hosts) < HOSTS * ROOM / 100
        links = storm.control_plane.fleet.hosts
        await eventually(lambda: not any(link.in_flight for link in links))
