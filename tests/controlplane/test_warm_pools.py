"""Warm pools on hosts, and starts that claim their standbys."""

import asyncio
import itertools
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from controlplane.domain.contract import Claim
from controlplane.domain.errors import StoreError
from controlplane.fleet import standby_pools
from controlplane.sessions.start import MAX_CLAIMS
from controlplane.storage.engine.store import Actor
from controlplane.storage.tables.claims import NewClaim
from controlplane.storage.tables.reports import Evaluation, Reports
from controlplane.storage.tables.session_rows import Attempt
from controlplane.storage.tables.sessions import NewSession, reserve
from tests.support.controlplane.fake_agent import refusing
from tests.support.controlplane.system import System, assert_error, eventually, eventually_equals
from tests.support.controlplane.transactions import Go, intercept, opened
from tests.support.hold import Hold
from tiltyard.agent.v1 import agent_pb2
from tiltyard.contract import Identity, Resources

POOL: dict[str, Any] = {"size": 3, "env": {"MODE": "warm"}, "labels": {"mode": "ffa"}}

pytestmark = pytest.mark.system(application={})


async def put(system: System, place: str = "game/local", **pool: Any) -> None:
    (await system.call("PUT", f"/warm-pool/{place}", json=POOL | pool)).expect(204)


async def becomes_ready(system: System, count: int) -> None:
    await system.until(
        "/warm-pool", lambda found: sum(pool["ready"] for pool in found["warmPools"]) == count
    )


async def keep(system: System, size: int = 3, **pool: Any) -> None:
    """Set the pool and wait until all its standbys are ready."""
    await put(system, size=size, **pool)
    await becomes_ready(system, size)


def shares(system: System) -> list[int]:
    return [len(agent.standbys) for agent in system.agents]


# ---- keeping


async def test_pool_is_kept_once_it_is_set_and_follows_its_application(system: System) -> None:
    await keep(system, claimSignal="SIGUSR1")
    (order,) = system.agent.orders
    assert order.size == 3
    assert order.claim_signal == "SIGUSR1"
    assert dict(order.spec.env) == {"MODE": "warm"}
    assert order.spec.identity.account == "alice"
    assert order.spec.identity.tag == "v1"
    assert len(order.spec.ports) == 2
    assert order.spec.restart is False
    assert (await system.edit(limits={"cpu": 2, "ram": 512, "disk": 100})).status == 204
    await eventually(lambda: len(system.agent.orders) == 2)
    order = system.agent.orders[-1]
    assert order.size == 3
    assert order.spec.disk_bytes == 100 * 2**20
    assert order.spec.limits.nano_cpus == 2 * 10**9


async def test_standbys_are_not_sessions(system: System) -> None:
    await keep(system)
    for query in ("", "?all=1"):
        assert await system.read(f"/session{query}") == {"sessions": []}
    assert await system.rows("SELECT 1 FROM session") == []
    shown = await system.read(f"/operator/agent/{system.agent.name}")
    assert shown["sessions"] == 0
    assert shown["unclaimedCount"] == 0
    [(pool_id,)] = await system.rows("SELECT id FROM warm_pool")
    kept = {"id": pool_id, "account": "alice", "image": "game", "location": "local"}
    assert shown["warmPools"] == [kept | {"size": 3, "standbys": 3, "ready": 3}]
    (standby, *_) = system.agent.standbys
    for path in (f"/session/{standby.internal_id}", f"/logs?id={standby.internal_id}"):
        assert_error(await system.call("GET", path), 404)


async def test_a_quota_counts_claims_and_no_standbys(system: System) -> None:
    await system.limit(sessions=1)
    await keep(system)
    assert (await system.start(id="x")).status == 201
    assert len(system.agent.claimed) == 1
    assert_error(await system.start(id="y"), 402)
    await becomes_ready(system, 3)


@pytest.mark.parametrize("path", ["/warm-pool/game/local", "/operator/account/alice"])
async def test_a_surplus_is_given_back(system: System, path: str) -> None:
    await keep(system)
    await put(system, size=1)
    await eventually(lambda: len(system.agent.standbys) == 1)
    assert (await system.call("DELETE", path)).status == 204
    await eventually(lambda: not system.agent.standbys)


async def test_revisions_grow_and_unchanged_orders_are_not_sent(system: System) -> None:
    await keep(system)
    await put(system)  # the same
    await put(system, size=4)
    await becomes_ready(system, 4)
    await put(system, env={"MODE": "other"}, size=4)
    await eventually(lambda: len(system.agent.orders) == 3)
    revisions = [order.revision for order in system.agent.orders]
    assert revisions == sorted(set(revisions))
    await system.restart()
    await becomes_ready(system, 4)
    await put(system, env={"MODE": "third"}, size=4)
    await eventually(lambda: system.agent.orders[-1].spec.env["MODE"] == "third")
    assert system.agent.orders[-1].revision > revisions[-1]


async def test_hosts_that_pull_later_keep_their_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = System(tmp_path, agents=2, in_order=True)
    first, second = system.agents
    first.host.free_sessions = 2
    async with system:
        await system.make_application()
        await keep(system, size=4)
        assert shares(system) == [2, 2]
        pulled = Hold()
        first.before_pull = pulled
        later = asyncio.create_task(system.enable("v2"))
        await eventually(lambda: {s.identity.tag for s in second.standbys} == {"v2"})
        assert {s.identity.tag for s in first.standbys} == {"v1"}
        assert shares(system) == [2, 2]
        # A host that never gets the image loses its share to those that have it.
        monkeypatch.setattr(standby_pools, "PULL_GRACE", 0.0)
        await eventually(lambda: shares(system) == [0, 4])
        pulled.set()
        await later


async def test_shares_move_off_unresponsive_hosts(tmp_path: Path) -> None:
    system = System(tmp_path, agents=2, in_order=True)
    first, second = system.agents
    first.beat = second.beat = 0.05
    async with system:
        await system.make_application()
        await keep(system)
        assert shares(system) == [3, 0]
        fleet = system.control_plane.fleet
        fleet.unresponsive_after = fleet.unreachable_after = 1.0
        await first.stop()
        await eventually(lambda: shares(system)[1] == 3)
        await becomes_ready(system, 3)
        await first.start()
        await eventually(lambda: shares(system) == [0, 3])  # they do not move back


async def test_pool_unknown_to_the_database_is_removed(system: System) -> None:
    await keep(system)
    await system.stop_serving()
    old = next(iter(system.agent.pools.values()))
    unknown = str(uuid.uuid4())
    far = old.revision + 10**15
    order = agent_pb2.SetWarmPoolRequest()
    order.CopyFrom(old)
    order.pool_id = unknown
    order.revision = far
    system.agent.pools[unknown] = order
    system.agent.fill(unknown)
    # And the database is older than the last order for its own pool.
    old.revision = far
    await system.serve()
    await eventually(lambda: len(system.agent.standbys) == 3)
    assert system.agent.pools[unknown].size == 0
    assert system.agent.pools[unknown].revision == far + 1
    await becomes_ready(system, 3)
    await put(system, size=5)
    await becomes_ready(system, 5)
    assert system.agent.pools[old.pool_id].revision > far


async def test_order_is_sent_until_the_host_acknowledges_it(system: System) -> None:
    refusals = iter(range(3))

    async def fail(_: Any, context: Any) -> None:
        if next(refusals, None) is not None:
            await refusing("DISK_FULL")(_, context)

    system.agent.before_order = fail
    await put(system)
    await becomes_ready(system, 3)
    assert len(system.agent.orders) == 1


async def test_full_region_is_available_while_a_standby_is_ready(system: System) -> None:
    await keep(system, size=1)
    system.agent.change_host(free_sessions=1)
    assert await system.locations() == ["local"]
    await put(system, enabled=False)
    await eventually(lambda: not system.agent.standbys)
    system.agent.change_host(free_sessions=0)
    await eventually_equals(system.locations, [])


@pytest.fixture
async def crowded(tmp_path: Path) -> AsyncIterator[System]:
    """Two hosts, of which the preferred one has room for three sessions."""
    system = System(tmp_path, agents=2, in_order=True)
    system.agents[0].host.free_sessions = 3
    async with system:
        await system.make_application()
        yield system


async def test_standbys_without_room_move_to_another_host(
    crowded: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby_pools, "SHORT_AFTER", 0.5)
    await keep(crowded, size=5)
    assert shares(crowded) == [3, 2]
    assert (await crowded.start(id="x")).status == 201  # its room is taken by the standby
    await becomes_ready(crowded, 5)


async def test_share_of_a_full_host_includes_standbys_being_claimed(
    crowded: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lower share would stop them, or others."""
    monkeypatch.setattr(standby_pools, "SHORT_AFTER", 0.0)
    second = crowded.agents[1]
    await crowded.make_application(name="other")
    await keep(crowded)
    start, claiming = await crowded.held_start("before_claim", id="x")
    await put(crowded, "other/local", size=1)
    await eventually(lambda: bool(second.standbys))
    assert shares(crowded) == [3, 1]
    claiming.set()
    assert (await start).status == 201


@pytest.mark.system(agents=2, in_order=True, application={})
async def test_an_agent_with_standbys_stays_until_it_is_drained(system: System) -> None:
    drained, other = system.agents
    await keep(system)
    assert shares(system) == [3, 0]
    system.agents.remove(drained)
    await system.restart()  # no longer declared in the settings file
    await becomes_ready(system, 3)
    path = f"/operator/agent/{drained.name}"
    assert_error(await system.call("DELETE", path), 409)
    await system.call("POST", f"{path}/drain", json={})
    await eventually(lambda: (len(other.standbys), len(drained.standbys)) == (3, 0))
    await system.until_answered("DELETE", path, 204)


# ---- claiming


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
    assert len(claim.identity.ticket) == 40
    shown = await system.read("/session/match")
    assert shown["id"] == "match"
    assert shown["tag"] == "v1"
    assert shown["status"] == "running"
    assert json.loads(shown["labels"]["tags"]) == {"mode": "ffa"}
    assert json.loads(shown["labels"]["env"]) == {"TILTYARD_SESSION_ID": "match"}
    assert shown["players"] == {"joined": [], "joinedCount": 0}
    assert answer.json["ports"] == [
        {"type": kind, "container": int(port), "host": shown["port"][f"{port}/{kind}"]}
        for port, kind in (("7777", "udp"), ("7778", "tcp"))
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
    gone = [(kind, one) for one in refused for kind in ("session.reserved", "session.not_started")]
    events = await system.events("session.%", "kind, object")
    assert events == [*gone, ("session.reserved", claim.internal_id)]


async def test_an_exhausted_pool_means_a_cold_start(system: System) -> None:
    await keep(system, size=1)
    system.agent.before_claim = refusing("STANDBY_NOT_CLAIMABLE")
    answer = (await system.start(labels={"mine": "1"})).expect(201)
    (start,) = system.agent.started
    (standby,) = system.agent.standbys
    assert start.spec.identity.session_id == answer.json["id"] != standby.internal_id
    shown = await system.read(f"/session/{answer.json['id']}")
    assert json.loads(shown["labels"]["tags"]) == {"mine": "1"}
    assert await system.rows("SELECT claim FROM session") == [(None,)]
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
        await eventually(lambda: bool((s := system.link().session(internal_id)) and s.detail))

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


@pytest.mark.parametrize("commits", [0, 1])
async def test_failed_transaction_of_a_claim_leaves_no_start(
    system: System, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the first claim, nor the row that replaces a refused one."""
    await keep(system, size=1)
    system.agent.before_claim = refusing("NOT_RECONCILED")
    left = itertools.count(-commits)

    async def fail(go: Go) -> None:
        if next(left) >= 0:
            raise StoreError("as scripted")
        await go()

    intercept(monkeypatch, reserve, fail)
    assert_error(await system.start(id="x"), 503)
    await eventually(lambda: system.control_plane.starts.under_way.get("alice", "x") is None)
    assert await system.rows("SELECT 1 FROM session") == []
    monkeypatch.undo()
    system.agent.change_host()
    await becomes_ready(system, 1)


async def test_a_claim_is_described_as_running_from_its_commit_on(system: System) -> None:
    """Before its host has answered, before that is confirmed, and then."""
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
    found = [(one["status"], one["host"], one["port"]) for one in shown]
    assert found == [("running", answer.json["host"], ports)] * 3
    assert json.loads(shown[1]["labels"]["env"])["TILTYARD_SESSION_ID"] == "x"
    assert shown[1] == shown[2]


async def test_a_session_is_stopped_during_its_claim(system: System) -> None:
    """By the id of its standby."""
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


# ---- ids


async def test_claim_is_confirmed_despite_a_report_while_it_was_under_way(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keep(system, size=1)
    reported = asyncio.Event()
    answered = asyncio.Event()
    write = Reports.write

    async def late(reports: Reports, agent: str, sessions: Any, *args: Any) -> Evaluation:
        found = await write(reports, agent, sessions, *args)
        if not reported.is_set() and any(each.identity.session_id == "x" for each in sessions):
            reported.set()
            await answered.wait()
        return found

    monkeypatch.setattr(Reports, "write", late)
    system.agent.after_claim = lambda *_: reported.wait()
    assert (await system.start(id="x")).status == 201
    answered.set()
    await eventually(lambda: system.is_confirmed("x"))


async def test_an_internal_id_is_accepted_wherever_an_id_is(system: System) -> None:
    assert (await system.start(id="match")).status == 201
    (internal_id,) = system.agent.sessions
    assert await system.read(f"/session/{internal_id}") == await system.read("/session/match")
    for number, name in enumerate((internal_id, "match"), start=1):
        assert (await system.join(f"p{number}", session=name)).json["count"] == number
    assert (await system.leave("p2", session=internal_id)).json["count"] == 1
    assert (await system.call("GET", f"/logs?id={internal_id}")).body == b"line 1\nline 2\n"
    assert_error(await system.call("GET", f"/session/{internal_id}", account="bob"), 404)
    assert (await system.call("DELETE", f"/session/{internal_id}")).status == 204
    assert await system.status_of("match") == "exited"
    assert (await system.read(f"/session/{internal_id}/report"))["id"] == "match"
    assert (await system.call("GET", f"/artifacts?session={internal_id}&path=/data")).status == 200
    assert_error(await system.call("DELETE", f"/session/{internal_id}"), 409)
    assert await system.events("session.stop", "DISTINCT object") == [("match",)]


async def test_internal_id_is_not_free_for_another_session_of_its_account(system: System) -> None:
    await keep(system)
    assert (await system.start(id="match")).status == 201
    internal_id = system.agent.claimed[0].internal_id
    assert_error(await system.start(id=internal_id), 409)
    await system.make_application(account="bob")
    assert (await system.start(account="bob", id=internal_id)).status == 201
    assert [session["id"] for session in (await system.read("/session"))["sessions"]] == ["match"]


# ---- reconciling


async def test_standby_in_doubt_without_a_row_is_stopped(system: System) -> None:
    await keep(system)
    (standby, *_) = system.agent.standbys
    standby.in_doubt = True
    await system.agent.restart()
    await eventually(lambda: standby.internal_id in system.agent.stopped)
    await becomes_ready(system, 3)
    assert system.agent.claimed == []


async def test_claim_of_a_dead_control_plane_is_replayed(system: System) -> None:
    """It is in the database, but its host never received it."""
    await keep(system)
    (standby, *_) = system.agent.standbys
    internal_id = standby.internal_id
    await system.stop_serving()
    mebi = Resources(10**9, 2**20)
    identity = Identity("alice", "match", "game", "v1", "local", {"mode": "ffa"}, "lobby")
    asked = Claim(internal_id, identity, 7200, '{"version": "v0"}')
    attempt = Attempt(internal_id, system.agent.name, "192.0.2.1")
    claim = NewClaim(attempt, (), {}, asked, Actor("x"))
    async with opened(system.config.database) as store:
        await store.run(reserve, NewSession(identity, mebi, 1, claim))
    await system.serve()
    await eventually(lambda: bool(system.agent.claimed))
    (replayed,) = system.agent.claimed
    assert replayed.internal_id == internal_id
    assert replayed.again is True
    assert replayed.ttl.seconds == 7200
    assert replayed.request_json == '{"version": "v0"}'
    assert replayed.identity.session_id == "match"
    assert replayed.identity.external_id == "lobby"
    assert dict(replayed.identity.labels) == {"mode": "ffa"}
    assert len(replayed.identity.ticket) == 40
    assert [session.internal_id for session in system.agent.live] == [internal_id]
    assert await system.rows("SELECT 1 FROM unanswered") == []
    assert (await system.start(id="x")).status == 201
    assert system.agent.claimed[1].internal_id != internal_id


async def test_a_claimed_session_that_an_older_database_lacks_is_adopted(system: System) -> None:
    await keep(system)
    assert (await system.start(id="match")).status == 201
    internal_id = system.agent.claimed[0].internal_id
    await system.rows("DELETE FROM session")
    await system.restart()
    await system.becomes("match", "running")
    assert (await system.read(f"/session/{internal_id}"))["id"] == "match"
    assert_error(await system.start(id=internal_id), 409)
