"""Warm pools that become full or short are events."""

import json

import pytest

from controlplane.domain.applications import pool_fill
from tests.controlplane.warm_pools import keep, put
from tests.support.controlplane.system import System, eventually_equals

pytestmark = pytest.mark.system(application={})


async def kinds(system: System) -> list[str]:
    return [kind for (kind,) in await system.events("warm_pool.%", "kind")]


async def test_pool_is_full_once_also_over_a_restart(system: System) -> None:
    await keep(system, 2)
    await eventually_equals(lambda: kinds(system), ["warm_pool.set", "warm_pool.full"])
    [(data,)] = await system.events("warm_pool.full", "data")
    assert json.loads(data) == {"size": 2, "ready": 2}
    await system.restart()
    await system.catches_up()
    await put(system, size=1)
    expected = ["warm_pool.set", "warm_pool.full", "warm_pool.set", "warm_pool.full"]
    await eventually_equals(lambda: kinds(system), expected)


async def test_pool_without_room_is_short(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_fill, "SHORT_AFTER", 0.0)
    system.agent.change_host(free_sessions=0)
    await system.has_reported("a0", free_sessions=0)
    await put(system, size=1)
    await eventually_equals(lambda: kinds(system), ["warm_pool.set", "warm_pool.short"])
