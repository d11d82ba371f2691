"""A host is believed only about what was given to it."""

import asyncio
import copy
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controlplane.domain.hosts.contract import Answer, HostSession
from controlplane.domain.sessions.adoption import Verdicts
from controlplane.fleet.host import watch
from controlplane.fleet.host.delivery import AT_ONCE
from controlplane.fleet.host.reports import Reports
from tests.controlplane.warm_pools import becomes_ready, keep
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.controlplane.system import System, eventually
from tiltyard.agent.v1 import agent_pb2


async def report_standby(system: System, liar: FakeAgent, honest: FakeAgent) -> None:
    """Let a host report a ready standby like that of another host."""
    [standby] = copy.deepcopy(honest.standbys)
    standby.internal_id = str(uuid.uuid4())
    liar.sessions[standby.internal_id] = standby
    liar.change(standby.internal_id)
    await eventually(lambda: system.link(liar.name).state.session(standby.internal_id) is not None)


def claim_order(liar: FakeAgent, pool_id: str, *, size: int) -> None:
    """Let a host report an order of the pool that is newer than any, and follow none."""
    liar.before_order = liar.hang
    order = agent_pb2.SetWarmPoolRequest(pool_id=pool_id, size=size, revision=2**60)
    liar.pools[pool_id] = order
    liar.change_host()


@pytest.mark.parametrize(
    ("place", "claimed_size"),
    [
        (("elsewhere", "default"), 3),
        (("local", "other"), 3),
        (("local", "default"), 0),
    ],
)
async def test_standbys_of_a_host_without_an_order_for_their_pool_are_not_claimed(
    tmp_path: Path, place: tuple[str, str], claimed_size: int
) -> None:
    system = System(tmp_path, agents=2, in_order=True, node_pools=("default", "other"))
    honest, liar = system.agents
    system.places[liar.name] = place
    async with system:
        await system.make_application(tag=None)
        await system.enable("v1", pulled_by=[honest])
        await keep(system, size=1)
        [(pool_id,)] = await system.rows("SELECT id FROM warm_pool")
        claim_order(liar, pool_id, size=claimed_size)
        await report_standby(system, liar, honest)
        for _ in range(2):
            [standby] = honest.standbys
            standby.ClearField("ready_time")
            honest.change(standby.internal_id)
            await becomes_ready(system, 0)
            start = await system.start(env={"SECRET": "of alice"})
            assert start.status == 201
            assert liar.claimed == []
            assert liar.started == []
            honest.bind(standby.internal_id)
            await becomes_ready(system, 1)
            await system.restart()
            await eventually(lambda: system.link(liar.name).state.reconciled)


class Stops:
    """A script that counts the stops in progress, which end once `released`."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.in_progress = 0
        self.most = 0

    async def __call__(self, _: Any, __: Any) -> None:
        self.in_progress += 1
        self.most = max(self.most, self.in_progress)
        try:
            await self.released.wait()
        finally:
            self.in_progress -= 1


@pytest.mark.system(agents=2, in_order=True, application={})
async def test_false_reports_of_one_host_cause_few_stops_at_a_time(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.fleet.host.delivery.PER_SECOND", 1e9)
    honest, liar = system.agents
    assert (await system.start(id="s")).status == 201
    [model] = honest.live
    stops = Stops()
    liar.before_stop = stops
    most = AT_ONCE["stop"]
    for number in range(most + 20):
        session = copy.deepcopy(model)
        session.internal_id = f"00000000-0000-4000-8000-{number:012}"
        session.in_doubt = True
        session.warm_pool = "none"
        liar.sessions[session.internal_id] = session
    liar.send_snapshot()
    await eventually(lambda: stops.in_progress >= most)
    for _ in range(20):  # so that more would have begun
        assert (await system.call("GET", "/session/s")).status == 200
    assert (await system.call("DELETE", "/session/s")).status == 204
    liar.send_snapshot()
    stops.released.set()
    await eventually(lambda: len(set(liar.stopped)) == most + 20)
    assert stops.most == most


@pytest.mark.system(application={})
async def test_many_reported_sessions_are_written_a_portion_at_a_time(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "PORTION", 10)
    assert (await system.start(id="s")).status == 201
    [model] = system.agent.live
    for number in range(45):
        session = copy.deepcopy(model)
        session.internal_id = f"00000000-0000-4000-8000-{number:012}"
        system.agent.sessions[session.internal_id] = session
    write = Reports.write
    written: list[int] = []

    async def noted(self: Reports, agent: str, sessions: Any, *more: Any) -> Verdicts:
        written.append(len(sessions))
        return await write(self, agent, sessions, *more)

    monkeypatch.setattr(Reports, "write", noted)
    system.agent.send_snapshot()
    await eventually(lambda: sum(written) >= 46)
    assert max(written) == 10


@pytest.mark.system(application={})
async def test_report_that_waits_for_others_is_not_written_over_a_later_answer(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "PORTION", 1)
    assert (await system.start(id="s")).status == 201
    [model] = system.agent.live
    other = copy.deepcopy(model)
    other.internal_id = str(uuid.UUID(int=0))
    system.agent.sessions = {each.internal_id: each for each in (other, model)}
    host = system.link(system.agent.name)
    write = Reports.write
    written: list[HostSession] = []

    async def noted(self: Reports, agent: str, sessions: Any, *more: Any) -> Verdicts:
        written.extend(sessions)
        if len(written) == 1:
            older = host.state.session(model.internal_id)
            assert older is not None
            ready = replace(older, sequence=older.sequence + 1, ready_time=1.0)
            host.state.answered(model.internal_id, Answer(ready, host.state.incarnation))
        return await write(self, agent, sessions, *more)

    monkeypatch.setattr(Reports, "write", noted)
    system.agent.send_snapshot()
    await eventually(lambda: len(written) >= 2)
    assert written[1].ready_time == 1.0
