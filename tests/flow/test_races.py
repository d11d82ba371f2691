"""Concurrent callers that compete for an id, for the rest of a quota, or for the room of hosts."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.faults.plugin import Rounds
from tests.flow.whole import Whole
from tests.support.controlplane.agent_scripts import refuse
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.controlplane.system import System, eventually

CALLERS = 50
ACCOUNTS = ("alice", "bob")
QUICKLY: dict[str, Any] = {"start_rate": 1e6, "start_burst": 10**6}


async def stop(whole: Whole, session_id: str, account: str) -> None:
    (await whole.call("DELETE", f"/session/{session_id}", account=account)).expect(204)


@pytest.mark.timeout(900)
async def test_f16_of_all_who_start_one_id_one_has_it_in_each_account(
    tmp_path: Path, rounds: Rounds
) -> None:
    async with Whole(tmp_path, **QUICKLY) as whole:
        for account in ACCOUNTS:
            await whole.make_game(account=account)
        for number in range(rounds(2, 200)):
            session_id = f"match-{number}"
            callers = [account for _ in range(CALLERS) for account in ACCOUNTS]
            answers = await asyncio.gather(
                *(whole.start(id=session_id, account=account) for account in callers)
            )
            for account in ACCOUNTS:
                mine = zip(callers, answers, strict=True)
                statuses = Counter(answer.status for caller, answer in mine if caller == account)
                assert statuses == {201: 1, 409: CALLERS - 1}
            assert len(whole.host.live) == len(ACCOUNTS) * (number + 1)  # ended sessions are kept
            assert len(whole.engine.living) == len(ACCOUNTS)
            for account in ACCOUNTS:
                await stop(whole, session_id, account)


@pytest.mark.timeout(900)
async def test_f17_of_all_who_want_the_last_of_a_quota_one_has_it(
    tmp_path: Path, rounds: Rounds
) -> None:
    quota = 5
    async with Whole(tmp_path, **QUICKLY) as whole:
        await whole.make_game()
        path = "/operator/account/alice"
        body = {"quota": {"sessions": quota}}
        (await whole.call("PUT", path, token=whole.operator_token, json=body)).expect(204)
        held = [f"held-{number}" for number in range(quota - 1)]
        for session_id in held:
            assert (await whole.start(id=session_id)).status == 201
        for _ in range(rounds(2, 200)):
            answers = await asyncio.gather(*(whole.start() for _ in range(CALLERS)))
            assert Counter(each.status for each in answers) == {201: 1, 402: CALLERS - 1}
            assert len(whole.engine.living) == quota
            [got] = [each.json["id"] for each in answers if each.status == 201]
            await stop(whole, got, "alice")
        for session_id in held:
            await stop(whole, session_id, "alice")


HOSTS = 20
SLOTS = 4
ROOM = 10
STORM = 500
SECONDS = 0.05  # Seconds that a start takes on a host


class Host(FakeAgent):
    """Admits as an agent does: bounded sessions and concurrent starts."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder, name)
        self.host.start_slots = SLOTS
        self.host.free_sessions = ROOM
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
    everybody = aiohttp.TCPConnector(limit=STORM)
    async with storm, aiohttp.ClientSession(connector=everybody) as storm.http:
        for account in ACCOUNTS:
            await storm.make_application(account=account, reservation={"cpu": 0.1, "ram": 1})
        calls = [storm.start(account=each) for _ in range(STORM // 2) for each in ACCOUNTS]
        answers = await asyncio.gather(*calls)
        started = Counter(
            account
            for account, answer in zip(ACCOUNTS * (STORM // 2), answers, strict=True)
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
        await eventually(lambda: not any(link.state.in_flight for link in links))
