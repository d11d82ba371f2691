"""Fifty real agents and one control plane, all of them disturbed while callers start and stop."""

import asyncio
import itertools
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest

from agent.domain.session import Session
from controlplane.settings.model import AgentConfig, Config
from tests.faults.invariants import beyond_quota, violations
from tests.flow.relay import Relay, a_relay
from tests.flow.whole import WholeAgent
from tests.support.controlplane.system import Answer, System, eventually

HOSTS = 50
ROOM = 2
"""Sessions that a host has room for."""
QUOTAS = {"alice": 35, "bob": 30}
CALLS = 50
"""Starts of each account: more than its quota, and together as many as there is room."""
LOOK_SECONDS = 0.1
CALLERS = 20
"""Starts that are under way at one time."""
DISTURBED = 5
"""Hosts of each kind of disturbance."""

Key = tuple[str, str]


class Fifty(System):
    """A control plane and its hosts; it reaches each by a relay."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(folder, agents=0, **settings)
        self.hosts = [
            WholeAgent(folder, f"h{number:02}", cpu=ROOM, ram=64 * ROOM) for number in range(HOSTS)
        ]
        self.agents = self.hosts  # type: ignore[assignment]  # they have what System asks of one
        self.relays: dict[str, Relay] = {}
        self._callers = asyncio.Semaphore(CALLERS)

    @property
    def config(self) -> Config:
        agents = (
            AgentConfig(name=h.name, address=f"unix:{self._relay(h)}", region="local")
            for h in self.hosts
        )
        return super().config.model_copy(update={"agents": tuple(agents)})

    def _relay(self, host: WholeAgent) -> Path:
        return self.folder / f"{host.name}.relay"

    async def _start_parts(self) -> None:
        for host in self.hosts:
            host.have_every_image()
            relay = a_relay(self._relay(host), host.config.socket)
            self.relays[host.name] = await self._stack.enter_async_context(relay)
        await super()._start_parts()

    @property
    def records(self) -> dict[str, list[Session]]:
        """The live sessions that each host has recorded."""
        return {
            host.name: [each for each in host.sessions if not each.state.ended]
            for host in self.hosts
        }

    async def told(self, account: str) -> list[Key]:
        """The sessions that play, as an account is told."""
        answer = await self.call("GET", "/session", account=account)
        return [(account, each["id"]) for each in answer.json["sessions"]]

    async def told_to_all(self) -> list[Key]:
        return [key for account in QUOTAS for key in await self.told(account)]

    async def try_to_start(self, account: str, session_id: str) -> Answer | None:
        """What a start is answered; None when nobody answered."""
        body = {"location": "local", "image": "game", "id": session_id}
        async with self._callers:
            try:
                return await self.call("POST", "/session", account=account, json=body)
            except aiohttp.ClientError:
                return None

    async def is_settled(self) -> bool:
        """Return whether what runs is what is recorded and told, each once, within its host."""
        await asyncio.sleep(LOOK_SECONDS)  # a look at fifty hosts keeps them all from working
        if not self.control_plane.fleet.ready or any(map(self._wrong, self.hosts)):
            return False
        recorded = [_key(each) for each in itertools.chain(*self.records.values())]
        return sorted(await self.told_to_all()) == sorted(recorded)

    def is_empty(self) -> bool:
        """Return whether every host has told that it has all its room."""
        hosts = [link.report for link in self.control_plane.fleet.hosts]
        return all(host is not None and host.reserved.nano_cpus == 0 for host in hosts)

    def _wrong(self, host: WholeAgent) -> list[str]:
        link = self.control_plane.fleet.host(host.name)
        if link is None or link.report is None or link.in_flight:
            return ["it is not known, or starts are under way"]
        return violations(host.observed(link.report.free_tcp_ports + link.report.free_udp_ports))


def _key(session: Session) -> Key:
    identity = session.spec.identity
    return identity.account, identity.session_id


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.rpc.service.HEARTBEAT_SECONDS", 0.2)
    monkeypatch.setattr("controlplane.fleet.host.watch.MESSAGE_TIMEOUT", 2.0)
    monkeypatch.setattr("controlplane.sessions.start.CALL_SHARE", 1.5 / 4)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_of_fifty_hosts_in_disorder_each_session_is_on_one_and_none_has_too_many(
    tmp_path: Path, chance: Random
) -> None:
    quickly: dict[str, Any] = {"start_rate": 1e6, "start_burst": 10**6, "start_timeout": 4.0}
    async with Fifty(tmp_path, **quickly) as fifty:
        await make_games(fifty)
        disturbed = chance.sample(fifty.hosts, 4 * DISTURBED)
        killed, refusing, silent, late = (disturbed[kind::4] for kind in range(4))
        for host in late:
            host.engine.hold("start")

        wanted = [(account, str(number)) for number in range(CALLS) for account in QUOTAS]
        calls = [asyncio.create_task(fifty.try_to_start(*key), name="start") for key in wanted]
        await until_answered(calls, 10)
        for host in refusing:
            host.engine.unavailable = True
        for host in silent:
            fifty.relays[host.name].go_dumb()
        for host in killed:
            await host.stop()
        await until_answered(calls, 40)
        await fifty.restart()
        answers = dict(zip(wanted, await asyncio.gather(*calls), strict=True))
        for host in late:
            host.engine.release("start")
        for host in refusing:
            host.engine.unavailable = False
        for host in killed:
            await host.start()

        await eventually(fifty.is_settled)
        statuses = Counter(answer and answer.status for answer in answers.values())
        assert set(statuses) <= {201, 402, 420, 503, None}, statuses
        made = {key for key, answer in answers.items() if answer and answer.status == 201}
        told = await fifty.told_to_all()
        assert made <= set(told), "what was answered with 201 is there"

        fifty.control_plane._starts.start_timeout = 30.0  # they only fill what is free
        again = [fifty.try_to_start(*key) for key in wanted if key not in told]
        await asyncio.gather(*again)
        await eventually(fifty.is_settled)
        told = await fifty.told_to_all()
        assert Counter(account for account, _ in told) == QUOTAS, "nothing is held by nobody"
        recorded = [each for host in fifty.hosts for each in host.sessions]
        assert beyond_quota(recorded, QUOTAS) == []
        assert max(len(live) for live in fifty.records.values()) <= ROOM

        stops = (fifty.call("DELETE", f"/session/{who}", account=account) for account, who in told)
        assert {answer.status for answer in await asyncio.gather(*stops)} == {204}
        await eventually(fifty.is_settled)
        await eventually(fifty.is_empty)


async def make_games(fifty: Fifty) -> None:
    """Let each account start as many sessions as it may have."""
    small = {"cpu": 1, "ram": 64}
    for account, quota in QUOTAS.items():
        await fifty.make_application(account=account, reservation=small, limits=small)
        path, body = f"/operator/account/{account}", {"quota": {"sessions": quota}}
        answer = await fifty.call("PUT", path, token=fifty.operator_token, json=body)
        assert answer.status == 204, answer.text


async def until_answered(calls: list[asyncio.Task[Answer | None]], count: int) -> None:
    await eventually(lambda: sum(call.done() for call in calls) >= count)
