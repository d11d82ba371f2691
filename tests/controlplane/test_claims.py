"""Starts that claim a standby of a warm pool."""

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from controlplane.domain.access.audit import Actor
from controlplane.domain.errors import StoreError
from controlplane.domain.sessions.adoption import Verdicts
from controlplane.domain.sessions.attempts import Attempt
from controlplane.domain.sessions.claims import ClaimedStandby
from controlplane.domain.sessions.sessions import NewSession
from controlplane.fleet.host.reports import Reports
from controlplane.sessions.start import MAX_CLAIMS
from controlplane.storage.tables.sessions.sessions import reserve
from tests.controlplane.warm_pools import becomes_ready, keep, shares
from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.system import System, assert_error, eventually, eventually_equals
from tests.support.controlplane.transactions import Go, intercept, opened
from tests.support.hold import Hold
from tiltyard.contract import Identity, Resources

pytestmark = pytest.mark.system(application={})


def refuse_claims(
    system: System,
    reason: str = "STANDBY_NOT_CLAIMABLE",
    most: int = 1000,
    after: Callable[[str], Awaitable[object]] | None = None,
) -> list[str]:
    """Refuse the next claims `after` something; return their internal ids, once refused."""
    refused: list[str] = []

    async def refuse(request: Any, context: Any) -> None:
        if len(refused) < most:
            refused.append(request.internal_id)
            if after is not None:
                await after(request.internal_id)
            await refusing(reason)(request, context)

    system.agent.before_claim = refuse
    return refused


async def test_a_quota_counts_claims_and_no_standbys(system: System) -> None:
    await system.limit(sessions=1)
    await keep(system)
    assert (await system.start(id="x")).status == 201
    assert len(system.agent.claimed) == 1
    assert_error(await system.start(id="y"), 402)
    await becomes_ready(system, 3)


async def test_claimed_standby_is_a_session_and_ready_at_once(system: System) -> None:
    await keep(system)
    before = {s.internal_id for s in system.agent.standbys}
    asked = {
        "env": {"A": "b"},
        "args": ["--x"],
        "labels": {"mine": "1"},
        "restart": True,
        "version": "none",
        "ttl": "2h",
        "external_id": "lobby",
    }
    prefer = {"Prefer": "wait=ready; wait=5"}
    answer = (await system.start(id="match", headers=prefer, **asked)).expect(201)
    assert answer.headers["Preference-Applied"] == "wait=ready"
    (claim,) = system.agent.claimed
    assert claim.internal_id in before
    assert claim.identity.session_id == "match"
    assert claim.identity.external_id == "lobby"
    assert dict(claim.identity.labels) == {"mode": "ffa"}
    assert claim.ttl.seconds == 7200
    assert not claim.again
    ignored = ("env", "args", "labels", "restart", "version")
    assert json.loads(claim.request_json) == {name: asked[name] for name in ignored}
    assert len(claim.identity.ticket) == 56
    shown = await system.read("/session/match")
    assert shown["id"] == "match"
    assert shown["tag"] == "v1"
    assert shown["status"] == "running"
    assert json.loads(shown["labels"]["tags"]) == {"mode": "ffa"}
    assert json.loads(shown["labels"]["env"]) == {"TILTYARD_SESSION_ID": "match"}
    assert shown["players"] == {"joined": [], "joinedCount": 0}
    assert answer.json["ports"] == [
        {"type": "udp", "container": 7777, "host": shown["port"]["7777/udp"]},
        {"type": "tcp", "container": 7778, "host": shown["port"]["7778/tcp"]},
    ]
    assert system.agent.started == []
    await becomes_ready(system, 3)


async def test_unclaimable_standby_is_skipped(system: System) -> None:
    await keep(system)
    refused = refuse_claims(system, most=2)
    answer = await system.start()
    (claim,) = system.agent.claimed
    assert answer.json["id"] == claim.internal_id
    assert len({claim.internal_id, *refused}) == 3
    assert system.agent.stopped == []
    first, second = refused
    assert await system.events("session.start%", "kind, object") == [
        ("session.starting", first),
        ("session.start_failed", first),
        ("session.starting", second),
        ("session.start_failed", second),
        ("session.starting", claim.internal_id),
    ]


async def test_an_exhausted_pool_means_a_cold_start(system: System) -> None:
    await keep(system, size=1)
    system.agent.before_claim = refusing("STANDBY_NOT_CLAIMABLE")
    answer = (await system.start(labels={"mine": "1"})).expect(201)
    (start,) = system.agent.started
    (standby,) = system.agent.standbys
    assert answer.json["id"] == start.spec.identity.session_id
    assert answer.json["id"] != standby.internal_id
    shown = await system.read(f"/session/{answer.json['id']}")
    assert json.loads(shown["labels"]["tags"]) == {"mine": "1"}
    assert await system.rows("SELECT claim FROM session") == [('{"ttl": null}',)]
    assert_error(await system.call("GET", f"/session/{standby.internal_id}"), 404)


async def test_standby_with_a_taken_id_is_skipped(system: System) -> None:
    """A game may publish its id before the claim, so that a caller can use it."""
    await keep(system, size=1)
    (standby,) = system.agent.standbys
    sent = {"container": 7777, "host": 20500, "type": "udp"}
    assert (await system.start(id=standby.internal_id, ports=[sent])).status == 201
    assert (await system.start(id="x")).status == 201
    assert system.agent.claimed == []
    assert len(system.agent.started) == 2


async def test_report_during_a_refused_claim_is_applied(system: System) -> None:
    await keep(system, size=1)

    async def report(internal_id: str) -> None:
        system.agent.change(internal_id, detail="still there")

        def is_reported() -> bool:
            session = system.link().state.session(internal_id)
            return session is not None and session.detail == "still there"

        await eventually(is_reported)

    refused = refuse_claims(system, most=1, after=report)
    assert (await system.start(id="x")).status == 201
    assert system.agent.claimed == []
    assert len(system.agent.started) == 1
    assert (await system.start(id="y")).status == 201
    assert [claim.internal_id for claim in system.agent.claimed] == refused


@pytest.mark.parametrize("reason", ["STANDBY_NOT_CLAIMABLE", "DISK_FULL"])
async def test_claims_per_start_are_limited(system: System, reason: str) -> None:
    """More claims would take the time of a cold start."""
    await keep(system, size=30)
    tries = refuse_claims(system, reason)
    assert (await system.start(id="x")).status == 201
    assert len(tries) <= MAX_CLAIMS
    assert [start.spec.identity.session_id for start in system.agent.started] == ["x"]


@pytest.mark.parametrize("is_answered", [True, False])
async def test_claim_that_a_host_cannot_make_is_tried_on_another_host(
    tmp_path: Path, *, is_answered: bool
) -> None:
    system = System(tmp_path, agents=2, in_order=True)
    first = system.agents[0]
    first.host.free_sessions = 3
    refused: list[str] = []

    async def fail(request: Any, context: Any) -> None:
        refused.append(request.internal_id)
        if is_answered:
            await refusing("DISK_FULL")(request, context)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "lost")

    async with system:
        await system.make_application()
        await keep(system, size=5)
        assert shares(system) == [3, 2]
        (pool_id,) = first.pools
        tried_first, _ = system.control_plane.fleet.standbys.ready_agents(pool_id)
        (failing,) = (agent for agent in system.agents if agent.name == tried_first)
        failing.before_claim = fail
        assert (await system.start(id="x")).status == 201
        assert len(refused) == 1
        assert failing.claimed == []
        assert sum(len(agent.claimed) for agent in system.agents) == 1


async def test_standby_that_a_full_disk_kept_from_one_start_is_claimed_by_the_next(
    system: System,
) -> None:
    """Its host changed nothing, so it reports nothing about the standby."""
    await keep(system, size=1)
    (standby,) = system.agent.standbys
    system.agent.before_claim = refusing("DISK_FULL")
    assert (await system.start(id="x")).status == 201
    assert system.agent.claimed == []
    system.agent.before_claim = None
    system.agent.change_host()
    await becomes_ready(system, 1)
    assert (await system.start(id="y")).status == 201
    assert [claim.internal_id for claim in system.agent.claimed] == [standby.internal_id]


@pytest.mark.parametrize("commits", [0, 1])
async def test_failed_transaction_of_a_claim_leaves_no_start(
    system: System, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the first claim, nor the row that replaces a refused one."""
    await keep(system, size=1)
    system.agent.before_claim = refusing("NOT_RECONCILED")
    left = itertools.count(-commits)

    async def fail(go: Go) -> Any:
        if next(left) >= 0:
            raise StoreError("as scripted")
        return await go()

    intercept(monkeypatch, reserve, fail)
    assert_error(await system.start(id="x"), 503)
    await eventually(lambda: system.control_plane.starts.under_way.get("alice", "x") is None)
    assert await system.rows("SELECT 1 FROM session") == []
    monkeypatch.undo()
    system.agent.change_host()
    await becomes_ready(system, 1)


async def test_a_claim_is_described_as_running_from_its_commit_on(system: System) -> None:
    """The test looks before the host answers, before the confirmation, and after it."""
    await keep(system)
    shown: list[Any] = []

    async def look(*_: Any) -> None:
        shown.append(await system.read("/session/x"))

    system.agent.before_claim = look
    answer = (await system.start(id="x")).expect(201)
    await look()
    await eventually(lambda: system.is_confirmed("x"))
    await look()
    ports = {f"{port['container']}/{port['type']}": port["host"] for port in answer.json["ports"]}
    assert len(shown) == 3
    for description in shown:
        assert description["status"] == "running"
        assert description["host"] == answer.json["host"]
        assert description["port"] == ports
    _, answered, confirmed = shown
    assert json.loads(answered["labels"]["env"])["TILTYARD_SESSION_ID"] == "x"
    assert answered == confirmed


async def test_a_session_is_stopped_during_its_claim(system: System) -> None:
    """The caller stops it by the id of its standby."""
    await keep(system)
    start, claiming = await system.held_start("after_claim", id="x")
    (claim,) = system.agent.claimed
    stop = asyncio.create_task(system.call("DELETE", f"/session/{claim.internal_id}"))
    marked = "SELECT 1 FROM session WHERE stop_requested_ms > 0"
    await eventually_equals(lambda: system.rows(marked), [(1,)])
    claiming.set()
    assert_error(await start, 409)
    assert (await stop).status == 204
    assert await system.status_of("x") == "exited"
    await system.nothing_is_left()


async def test_refused_claim_marked_for_stop_is_not_replaced(system: System) -> None:
    """Its row is marked by another control plane, unknown to this one."""
    await keep(system)
    mark = "UPDATE session SET stop_requested_ms=1"
    refused = refuse_claims(system, after=lambda _: system.rows(mark))
    assert_error(await system.start(id="x"), 409)
    assert len(refused) == 1
    assert system.agent.claimed == []
    assert system.agent.started == []
    assert await system.rows("SELECT 1 FROM session") == []
    await system.nothing_is_left()
    assert system.agent.stopped == []


@pytest.mark.system(start_rate=0.001, start_burst=1, application={})
async def test_a_claim_counts_in_the_start_rate(system: System) -> None:
    await keep(system)
    assert (await system.start(id="x")).status == 201
    assert_error(await system.start(id="y"), 420)
    assert len(system.agent.claimed) == 1


async def test_two_hosts_that_do_not_answer_a_claim_make_a_cold_start(tmp_path: Path) -> None:
    asked: list[str] = []

    async def dies(request: Any, context: Any) -> None:
        asked.append(request.internal_id)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

    system = System(tmp_path, agents=4, in_order=True)
    for agent in system.agents[:3]:
        agent.host.free_sessions = 1
    async with system:
        await system.make_application()
        await keep(system, size=4)
        assert sum(share > 0 for share in shares(system)) >= 3
        for agent in system.agents:
            agent.pools.clear()  # nothing is refilled
            agent.before_claim = dies
        assert (await system.start(id="x")).status == 201
        assert len(asked) == 2
        assert sum(len(agent.started) for agent in system.agents) == 1


async def test_claim_is_confirmed_despite_a_report_while_it_was_under_way(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keep(system, size=1)
    reported = asyncio.Event()
    answered = asyncio.Event()
    write = Reports.write

    async def late(reports: Reports, agent: str, sessions: Any, *args: Any) -> Verdicts:
        found = await write(reports, agent, sessions, *args)
        if not reported.is_set() and any(s.identity.session_id == "x" for s in sessions):
            reported.set()
            await answered.wait()
        return found

    monkeypatch.setattr(Reports, "write", late)
    system.agent.after_claim = lambda *_: reported.wait()
    assert (await system.start(id="x")).status == 201
    answered.set()
    await eventually(lambda: system.is_confirmed("x"))


async def test_an_internal_id_is_accepted_wherever_an_id_is(system: System) -> None:
    """One session through its life, named by its internal id in each call."""
    assert (await system.start(id="match")).status == 201
    (internal_id,) = system.agent.sessions
    assert await system.read(f"/session/{internal_id}") == await system.read("/session/match")
    assert (await system.join("p1", session=internal_id)).json["count"] == 1
    assert (await system.join("p2", session="match")).json["count"] == 2
    assert (await system.leave("p2", session=internal_id)).json["count"] == 1
    assert (await system.call("GET", f"/logs?id={internal_id}")).body == b"line 1\nline 2\n"
    assert_error(await system.call("GET", f"/session/{internal_id}", account="bob"), 404)
    assert (await system.call("DELETE", f"/session/{internal_id}")).status == 204
    assert await system.status_of("match") == "exited"
    assert (await system.read(f"/session/{internal_id}/report"))["id"] == "match"
    assert (await system.call("GET", f"/artifacts?session={internal_id}&path=/data")).status == 200
    assert_error(await system.call("DELETE", f"/session/{internal_id}"), 409)
    assert await system.events("session.stop_requested", "DISTINCT object") == [("match",)]


async def test_internal_id_is_not_free_for_another_session_of_its_account(system: System) -> None:
    await keep(system)
    assert (await system.start(id="match")).status == 201
    internal_id = system.agent.claimed[0].internal_id
    assert_error(await system.start(id=internal_id), 409)
    await system.make_application(account="bob")
    assert (await system.start(account="bob", id=internal_id)).status == 201
    (session,) = (await system.read("/session"))["sessions"]
    assert session["id"] == "match"


async def test_standby_in_doubt_without_a_row_is_stopped(system: System) -> None:
    await keep(system)
    (standby, *_) = system.agent.standbys
    standby.in_doubt = True
    await system.agent.restart()
    await eventually(lambda: standby.internal_id in system.agent.stopped)
    await becomes_ready(system, 3)
    assert system.agent.claimed == []


async def claim_and_die(system: System, internal_id: str) -> None:
    """Restart as if a control plane had stored a claim and died before it called the host."""
    await system.stop_serving()
    mebi = Resources(10**9, 2**20)
    identity = Identity("alice", "match", "game", "v1", "local", {"mode": "ffa"}, "lobby")
    attempt = Attempt(internal_id, system.agent.name, "192.0.2.1")
    standby = ClaimedStandby(attempt, (), {}, '{"version": "v0"}')
    new = NewSession(identity, mebi, 1, Actor("x"), 7200, standby)
    async with opened(system.config.database) as store:
        await store.run(reserve, new)
    await system.serve()


async def test_claim_of_a_dead_control_plane_is_replayed(system: System) -> None:
    """It is in the database, but its host never received it."""
    await keep(system)
    (standby, *_) = system.agent.standbys
    internal_id = standby.internal_id
    await claim_and_die(system, internal_id)
    await eventually(lambda: bool(system.agent.claimed))
    (replayed,) = system.agent.claimed
    assert replayed.internal_id == internal_id
    assert replayed.again is True
    assert replayed.ttl.seconds == 7200
    assert replayed.request_json == '{"version": "v0"}'
    assert replayed.identity.session_id == "match"
    assert replayed.identity.external_id == "lobby"
    assert dict(replayed.identity.labels) == {"mode": "ffa"}
    assert len(replayed.identity.ticket) == 56
    assert [session.internal_id for session in system.agent.live] == [internal_id]
    assert await system.rows("SELECT 1 FROM stop_order") == []
    await becomes_ready(system, 3)
    assert (await system.start(id="x")).status == 201
    assert system.agent.claimed[1].internal_id != internal_id


async def test_claim_of_a_dead_control_plane_on_an_ended_standby_leaves_no_session(
    system: System,
) -> None:
    await keep(system)
    (standby, *_) = system.agent.standbys
    system.agent.pools.clear()  # nothing is refilled
    system.agent.end(standby.internal_id)
    system.agent.lose(standby.internal_id)
    await claim_and_die(system, standby.internal_id)
    assert_error(await system.call("GET", "/session/match"), 404)
    await system.nothing_is_left()


async def test_replayed_claim_is_repeated_until_its_host_can_make_it(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    await keep(system)
    (standby, *_) = system.agent.standbys
    refused: list[str] = []

    async def refuse_thrice(request: Any, context: Any) -> None:
        if len(refused) < 3:
            refused.append(request.internal_id)
            await refusing("DISK_FULL")(request, context)

    system.agent.before_claim = refuse_thrice
    await claim_and_die(system, standby.internal_id)
    await eventually(lambda: bool(system.agent.claimed))
    assert refused == [standby.internal_id] * 3
    assert await system.status_of("match") == "running"
    assert len([text for text in caplog.messages if "cannot claim again yet" in text]) == 1


async def test_standby_of_a_stored_claim_is_not_claimed_for_another_session(
    system: System,
) -> None:
    """Although its host, which has not received the claim, reports it as ready."""
    await keep(system, size=1)
    (standby,) = system.agent.standbys
    system.agent.before_claim = received = Hold()
    await claim_and_die(system, standby.internal_id)
    assert (await system.start(id="x")).status == 201
    assert [start.spec.identity.session_id for start in system.agent.started] == ["x"]
    received.set()
    await eventually(lambda: bool(system.agent.claimed))
    assert [claim.identity.session_id for claim in system.agent.claimed] == ["match"]


async def test_a_claimed_session_that_an_older_database_lacks_is_adopted(system: System) -> None:
    await keep(system)
    assert (await system.start(id="match")).status == 201
    internal_id = system.agent.claimed[0].internal_id
    await system.rows("DELETE FROM session")
    await system.restart()
    await system.becomes("match", "running")
    assert (await system.read(f"/session/{internal_id}"))["id"] == "match"
    assert_error(await system.start(id=internal_id), 409)
