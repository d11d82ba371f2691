"""Sessions of a revoked host, at each moment of a revocation."""

import asyncio
import copy
from typing import Any

import pytest

from controlplane.domain.errors import StoreError
from controlplane.fleet.host import watch
from controlplane.storage.tables.sessions import session_ends
from controlplane.storage.tables.sessions.sessions import begin_attempt, reserve
from tests.controlplane.warm_pools import keep
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.controlplane.system import (
    Answer,
    System,
    assert_error,
    eventually,
    eventually_equals,
)
from tests.support.controlplane.transactions import Go, intercept, intercept_answers
from tests.support.hold import held_before
from tests.support.tasks import running
from tiltyard.agent.v1 import agent_pb2

LONG = 3600.0  # Seconds


class Revoking(System):
    """The last agent counts as an enrolled one: its row has an id."""

    async def enrolled(self) -> FakeAgent:
        """Return it; no other host has a start slot."""
        agent = self.agents.pop()
        await self.restart()
        # A host with an id is dialled with TLS, so that its row must not be read again.
        await eventually(lambda: self.link(agent.name).state.reconciled)
        await self.control_plane.fleet.caught_up()
        await self.unnoticed("UPDATE agent SET id='the-id' WHERE name=?", agent.name)
        self.agent.change_host(start_slots=0)
        await self.has_reported(self.agent.name, start_slots=0)
        return agent

    async def ask(self, method: str, path: str) -> Answer:
        return await self.call(method, f"/operator/agent/{path}")

    async def session(self, session_id: str) -> list[tuple[Any, ...]]:
        sql = "SELECT state, end_reason, agent FROM session WHERE id=?"
        return await self.rows(sql, session_id)

    async def owed(self) -> list[tuple[Any, ...]]:
        return await self.rows("SELECT agent FROM stop_order WHERE confirmed_ms IS NULL")


pytestmark = pytest.mark.system(kind=Revoking, agents=2, application={})


async def test_only_enrolled_agents_can_be_revoked(system: Revoking) -> None:
    gone = await system.enrolled()
    assert_error(await system.ask("POST", "a0/revoke"), 409)
    for _ in range(2):
        assert (await system.ask("POST", f"{gone.name}/revoke")).status == 200
    shown = (await system.ask("GET", gone.name)).json
    assert shown["state"] == "revoked"
    assert shown["declared"] is False
    assert shown["version"] is None
    events = await system.events("agent.revoked", "actor, object")
    assert events == [(system.operator_id, gone.name)]
    assert (await system.ask("DELETE", gone.name)).status == 204
    assert_error(await system.ask("GET", gone.name), 404)


async def test_sessions_of_a_revoked_host_end_in_portions_also_over_a_crash(
    system: Revoking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_ends, "PORTION", 1)
    gone = await system.enrolled()
    for session_id in ("one", "two"):
        (await system.start(id=session_id)).expect(201)
    live = "SELECT count(*) FROM session WHERE ended_ms IS NULL"
    left = list[int]()

    async def fail_in_between(go: Go) -> Any:
        left.extend(count for (count,) in await system.rows(live))
        if len(left) == 2:
            raise StoreError("scripted")
        return await go()

    intercept(monkeypatch, session_ends.lose_sessions, fail_in_between)
    assert (await system.ask("POST", f"{gone.name}/revoke")).status == 503
    assert left == [2, 1]
    assert (await system.ask("GET", gone.name)).json["state"] == "revoked"
    await system.restart()
    for session_id in ("one", "two"):
        assert await system.session(session_id) == [("dead", "host_lost", gone.name)]


async def test_start_under_way_continues_on_another_host(system: Revoking) -> None:
    gone = await system.enrolled()
    starting, _ = await system.held_start(agent=gone, id="match")
    system.agent.change_host(start_slots=4)
    assert (await system.ask("POST", f"{gone.name}/revoke")).status == 200
    assert (await starting).status == 201
    assert await system.session("match") == [("running", None, "a0")]
    # Nothing waits for the first attempt.
    assert (await system.ask("DELETE", gone.name)).status == 204
    assert await system.owed() == []


async def test_start_answered_during_revocation_is_lost(system: Revoking) -> None:
    gone = await system.enrolled()

    async def after_the_revocation(go: Go) -> Any:
        assert (await system.ask("POST", f"{gone.name}/revoke")).status == 200
        # As if its stream had not reported it before the revocation.
        await system.rows(
            "UPDATE session SET confirmed=0, state='created', ended_ms=NULL, end_reason=NULL"
        )
        return await go()

    intercept_answers(system, after_the_revocation)
    assert (await system.start(id="match")).status == 201
    assert await system.session("match") == [("dead", "host_lost", gone.name)]
    assert (await system.ask("DELETE", gone.name)).status == 204


async def test_sessions_claimed_just_before_a_revocation_are_lost(
    system: Revoking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One claim waits to be written with others; the host answers another one later."""
    monkeypatch.setattr(watch, "GATHER_SECONDS", LONG)
    gone = await system.enrolled()
    system.agent.change_host(free_sessions=0)
    await system.has_reported(system.agent.name, free_sessions=0)
    await keep(system, size=2)
    (await system.start(id="answered")).expect(201)
    closing = held_before(system.link(gone.name).state.client, "close")
    late, claim = await system.held_start("after_claim", agent=gone, id="late")
    assert (await system.ask("POST", f"{gone.name}/revoke")).status == 200
    lost = [("dead", "host_lost", gone.name)]
    await eventually_equals(lambda: system.session("answered"), lost)
    claim.set()
    (await late).expect(201)
    await eventually_equals(lambda: system.session("late"), lost)
    closing.set()
    assert (await system.ask("DELETE", gone.name)).status == 204
    assert await system.owed() == []
    assert gone.stopped == []


@pytest.mark.system(kind=Revoking, agents=2, application={}, start_timeout=2)
async def test_no_attempt_begins_on_a_host_revoked_meanwhile(
    system: Revoking, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = await system.enrolled()

    async def after_the_revocation(go: Go) -> Any:
        assert (await system.ask("POST", f"{gone.name}/revoke")).status == 200
        return await go()

    intercept(monkeypatch, reserve, after_the_revocation)
    assert_error(await system.start(id="match"), 420)
    assert not gone.started
    assert await system.session("match") == []
    assert await system.owed() == []


async def test_start_that_waited_does_not_begin_on_a_host_revoked_meanwhile(
    system: Revoking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row is older than its attempt, so each is a transaction."""
    gone = await system.enrolled()
    gone.change_host(start_slots=0)
    await system.has_reported(gone.name, start_slots=0)

    async def after_the_revocation(go: Go) -> Any:
        assert (await system.ask("POST", f"{gone.name}/revoke")).status == 200
        return await go()

    intercept(monkeypatch, begin_attempt, after_the_revocation)
    start = asyncio.create_task(system.start(id="match"))
    queue = system.control_plane.starts.queue
    await eventually(lambda: any(queue.waiting().values()))
    gone.change_host(start_slots=1)
    await eventually(lambda: system.control_plane.fleet.host(gone.name) is None)
    monkeypatch.undo()
    system.agent.change_host(start_slots=1)
    assert (await start).status == 201
    assert not gone.started
    assert await system.session("match") == [("running", None, system.agent.name)]
    assert await system.owed() == []


async def test_restart_frees_unfinished_starts_on_a_revoked_host(system: Revoking) -> None:
    gone = await system.enrolled()
    assert (await system.start(id="begun")).status == 201
    assert (await system.start(id="other")).status == 201
    await system.stop_serving()
    system.control_plane = system.make_control_plane()
    await system.control_plane.store.open()
    await system.rows("UPDATE session SET confirmed=(id='other')")
    await system.unnoticed("UPDATE agent SET revoked_ms=1 WHERE name=?", gone.name)
    await system.control_plane.store.close()
    await system.serve()
    assert await system.session("begun") == []
    assert await system.session("other") == [("dead", "host_lost", gone.name)]
    assert await system.owed() == []


async def test_a_host_is_revoked_while_it_floods_and_its_exposure_is_listed(
    system: Revoking,
) -> None:
    gone = await system.enrolled()
    login = {"address": "r.example", "username": "robot", "password": "secret"}
    (await system.call("PUT", "/operator/registry/private", json=login)).expect(204)
    await system.make_application(tag=None, name="other", registry="private")
    assert (await system.start(id="live")).status == 201
    assert (await system.start(id="over")).status == 201
    [session] = [each for each in gone.live if each.identity.session_id == "over"]
    gone.end(session.internal_id)
    await system.becomes("over", "exited")
    (await system.call("PUT", "/warm-pool/game/local", json={"size": 1})).expect(204)
    before = (await system.ask("GET", f"{gone.name}/exposure")).expect(200).json

    async def flood() -> None:
        while True:
            for number in range(50):
                false = copy.deepcopy(session)
                false.internal_id = f"00000000-0000-4000-8000-{number:012}"
                false.in_doubt = True
                false.warm_pool = "none"
                gone.sessions[false.internal_id] = false
                gone.change(false.internal_id, state=agent_pb2.STATE_RUNNING)
            gone.change_host(version="x" * 1000)
            await asyncio.sleep(0)

    async with running(flood()):
        revoked = (await system.ask("POST", f"{gone.name}/revoke")).expect(200).json
        assert system.control_plane.fleet.host(gone.name) is None
        assert await system.session("live") == [("dead", "host_lost", gone.name)]
        assert (await system.call("GET", "/session", account="bob")).status == 200
    assert revoked == before
    [placed] = revoked["applications"]
    assert placed.pop("first") <= placed.pop("last")
    assert placed == {"account": "alice", "image": "game", "sessions": 2, "running": 1}
    assert revoked["sessions"] == 2
    assert revoked["running"] == 1
    assert revoked["accounts"] == ["alice"]
    assert revoked["warmPools"] == [{"account": "alice", "image": "game", "location": "local"}]
    assert revoked["registryLogins"] == [
        {"name": "private", "address": "r.example", "username": "robot"}
    ]
    listed = await system.read(f"/operator/session?agent={gone.name}&all=1")
    assert {each["id"] for each in listed["sessions"]} == {"live", "over"}
    await system.restart()
    assert (await system.ask("GET", f"{gone.name}/exposure")).json == before
    assert (await system.ask("DELETE", gone.name)).status == 204
    assert_error(await system.ask("GET", f"{gone.name}/exposure"), 404)


async def test_exposure_has_nothing_of_other_hosts_and_places(system: Revoking) -> None:
    gone = await system.enrolled()
    (await system.edit(regions=["elsewhere"])).expect(204)
    shown = (await system.ask("GET", f"{gone.name}/exposure")).json
    assert shown["accounts"] == []
    assert shown["sessions"] == 0
    assert shown["warmPools"] == []
