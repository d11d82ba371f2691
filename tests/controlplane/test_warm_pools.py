"""Warm pools on hosts: how many standbys each host is ordered to keep."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.fleet import standby_plan
from tests.controlplane.warm_pools import becomes_ready, keep, put, shares
from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.system import System, assert_error, eventually, eventually_equals
from tests.support.hold import Hold
from tiltyard.agent.v1 import agent_pb2

pytestmark = pytest.mark.system(application={})


async def test_pool_is_kept_once_it_is_set(system: System) -> None:
    await keep(system, claimSignal="SIGUSR1")
    (order,) = system.agent.orders
    assert order.size == 3
    assert order.claim_signal == "SIGUSR1"
    assert dict(order.spec.env) == {"MODE": "warm"}
    assert order.spec.identity.account == "alice"
    assert order.spec.identity.tag == "v1"
    assert len(order.spec.ports) == 2
    assert order.spec.restart is False


async def test_standbys_follow_an_edit_of_their_application(system: System) -> None:
    await keep(system)
    limits = {"cpu": 2, "ram": 512, "disk": 100, "pids": 99, "shm": 98}
    assert (await system.edit(limits=limits)).status == 204
    await eventually(lambda: len(system.agent.orders) == 2)
    order = system.agent.orders[-1]
    assert order.size == 3
    assert order.spec.disk_bytes == 100 * 2**20
    assert order.spec.pids == 99
    assert order.spec.shm_bytes == 98 * 2**20
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


async def test_surplus_of_a_smaller_pool_is_given_back(system: System) -> None:
    await keep(system)
    await put(system, size=1)
    await eventually(lambda: len(system.agent.standbys) == 1)


async def test_pool_of_a_region_that_its_application_leaves_is_given_back(system: System) -> None:
    await keep(system)
    assert (await system.edit(regions=["elsewhere"])).status == 204
    await eventually(lambda: not system.agent.standbys)


@pytest.mark.parametrize("path", ["/warm-pool/game/local", "/operator/account/alice"])
async def test_standbys_of_a_removed_pool_or_account_are_given_back(
    system: System, path: str
) -> None:
    await keep(system)
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
        monkeypatch.setattr(standby_plan, "PULL_GRACE", 0.0)
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
        fleet.unresponsive_after = fleet.unreachable_after = 60.0
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
    monkeypatch.setattr(standby_plan, "SHORT_AFTER", 0.5)
    await keep(crowded, size=5)
    assert shares(crowded) == [3, 2]
    assert (await crowded.start(id="x")).status == 201  # its room is taken by the standby
    await becomes_ready(crowded, 5)


async def test_share_of_a_full_host_includes_standbys_being_claimed(
    crowded: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lower share would stop them, or others."""
    monkeypatch.setattr(standby_plan, "SHORT_AFTER", 0.0)
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
    await eventually(lambda: len(other.standbys) == 3 and not drained.standbys)
    await system.until_answered("DELETE", path, 204)
