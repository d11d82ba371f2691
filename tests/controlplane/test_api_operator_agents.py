"""Agents as operators see them, and when the control plane is ready without some."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.operated_agents import LOST, Operated
from tests.support.controlplane.system import assert_error, eventually
from tiltyard.runtime.clock import to_ms

UNKNOWN_YET = dict.fromkeys(
    (
        "version",
        "publicAddress",
        "latencyAddresses",
        "unresponsiveAddresses",
        "latency",
        "engineAvailable",
        "engineVersion",
        "runcVersion",
        "kernelVersion",
        "capacity",
        "reserved",
        "sessions",
        "freeSessions",
        "images",
        "imageCount",
        "freeForImages",
    )
)


pytestmark = pytest.mark.system(kind=Operated, agents=2)


async def test_an_agent_is_shown_with_its_host(system: Operated) -> None:
    image = await system.make_application()
    (await system.start()).expect(201)
    busy, idle = sorted(system.agents, key=lambda agent: not agent.live)
    busy.change_host(draining=True, version="1.2.3", engine_available=False)
    await system.until(f"/operator/agent/{busy.name}", lambda shown: shown["draining"])
    before = to_ms(system.clock.time()) - 60_000
    shown = (await system.ask("GET", f"/{busy.name}")).json
    assert before < shown.pop("lastReport") <= to_ms(system.clock.time())
    none: dict[str, Any] = {"unresponsiveAddresses": []}
    for thing in ("pull", "warmPool", "startFailure"):
        none |= {f"{thing}s": [], f"{thing}Count": 0}
    none |= {"prepared": [], "preparedCount": 0}
    unset = ("certificateExpires", "authority", "revoked", "latency", "drainDeadline", "lost")
    assert shown == none | dict.fromkeys(unset) | {
        "name": busy.name,
        "address": busy.address,
        "region": "local",
        "nodePool": "default",
        "declared": True,
        "state": "draining",
        "version": "1.2.3",
        "publicAddress": "192.0.2.1",
        "latencyAddresses": ["192.0.2.1"],
        "draining": True,
        "drainPending": False,
        "engineAvailable": False,
        "engineVersion": "28.5.2",
        "runcVersion": "1.3.3",
        "kernelVersion": "6.12.0",
        "capacity": {"cpu": 64.0, "ram": 65536.0, "gpu": 0},
        "reserved": {"cpu": 1.0, "ram": 256.0, "gpu": 0},
        "sessions": 1,
        "freeSessions": 999,
        "images": [image],
        "imageCount": 1,
        "imageAccounts": [{"account": "alice", "size": 0.0}],
        "imageAccountCount": 1,
        "freeForImages": None,
        "unclaimed": [],
        "unclaimedCount": 0,
    }
    listed = await system.agents_by_name()
    assert list(listed) == ["a0", "a1"]
    other = listed[idle.name]
    assert other["sessions"] == 0
    assert other["draining"] is False
    assert other["freeSessions"] == 1000


async def test_state_of_an_agent_says_why_no_session_is_placed_there(system: Operated) -> None:
    host = system.agents[1]
    host.change_host(disk_full=True)
    await system.reaches("a1", "disk_full")
    host.change_host(engine_available=False)
    await system.reaches("a1", "engine_unavailable")
    host.change_host(draining=True)
    await system.reaches("a1", "draining")
    host.change_host(draining=False, engine_available=True, disk_full=False)
    await system.reaches("a1", "ready")
    assert (await system.agents_by_name())["a0"]["state"] == "ready"
    await host.stop()
    await system.reaches("a1", "unresponsive")


async def test_an_agent_without_a_report_since_the_start_is_connecting(system: Operated) -> None:
    await system.agent.stop()
    await system.restart()
    await system.add_agent("never")
    for name in ("a0", "never"):
        shown = (await system.agents_by_name())[name]
        assert shown | UNKNOWN_YET == shown
        assert shown["state"] == "connecting"
        assert (shown["lastReport"] is None) == (name == "never")
    await system.reaches("a1", "ready")


async def test_readiness_waits_for_a_reconciled_snapshot_of_each_agent(system: Operated) -> None:
    kept, gone = system.agents
    system.agents.remove(gone)
    before = system.control_plane
    kept.reconciled = gone.reconciled = False
    restarting = asyncio.create_task(system.restart(), name="restart")
    await eventually(lambda: system.control_plane is not before)
    await system.control_plane.listening.wait()
    for agent in (kept, gone):
        path = f"/operator/agent/{agent.name}"
        await system.until(path, lambda shown: shown["publicAddress"] is not None)
        assert (await system.read(path))["state"] == "connecting"
    kept.reconciled = True
    kept.send_snapshot()
    await system.reaches(kept.name, "ready")
    assert_error(await system.call("GET", "/readyz"), 503)
    assert (await system.ask("DELETE", "/a1")).status == 204
    await restarting
    assert (await system.call("GET", "/readyz")).status == 200
    await system.add_agent("new")
    assert (await system.call("GET", "/readyz")).status == 200
    assert "watch new" in {task.get_name() for task in asyncio.all_tasks()}


async def test_a_lost_agent_that_returns_is_lost_no_longer(tmp_path: Path) -> None:
    system = Operated(tmp_path, **LOST)
    system.agent.beat = 0.05
    async with system:
        await system.agent.stop()
        await system.reaches("a0", "lost")
        await system.agent.start()
        await system.reaches("a0", "ready")
        assert (await system.agents_by_name())["a0"]["lost"] is None
        assert await system.rows("SELECT downtime_ms, lost_ms FROM agent") == [(0, None)]
