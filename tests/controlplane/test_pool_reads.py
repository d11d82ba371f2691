"""Reads of warm pools, whose env, args and labels may be large."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from controlplane.storage.engine.store import Store
from controlplane.storage.tables.standby_orders import WantedPool
from controlplane.storage.tables.standby_orders import wanted as wanted_pools
from tests.support.controlplane.system import System
from tests.support.controlplane.transactions import opened

REGIONS = ("a", "b", "c", "d", "e")

pytestmark = pytest.mark.system(
    regions=("local", *REGIONS), application={"tag": None, "regions": list(REGIONS)}
)


async def put(system: System, region: str, **fields: Any) -> None:
    body = {"size": 1, "env": {"REGION": region}, "args": ["x"], "labels": {"y": "z"}} | fields
    (await system.call("PUT", f"/warm-pool/game/{region}", json=body)).expect(204)


@pytest.fixture
async def store(system: System) -> AsyncIterator[Store]:
    """Open the database a second time, since the control plane also reads pools."""
    async with opened(system.config.database) as store:
        yield store


async def test_only_pools_that_were_changed_are_read_again(system: System, store: Store) -> None:
    for region in REGIONS[:3]:
        await put(system, region)
    await put(system, "d", size=0)
    await put(system, "e", enabled=False)
    large: list[str] = []

    async def wanted(known: dict[str, WantedPool]) -> dict[str, WantedPool]:
        large.clear()
        return {each.pool.location: each for each in await wanted_pools(store, known)}

    def by_id(found: dict[str, WantedPool]) -> dict[str, WantedPool]:
        return {each.pool.id: each for each in found.values()}

    def note(sql: str) -> None:
        if " env," in sql:
            large.append(sql)

    await store.read(lambda db: db.conn.set_trace_callback(note))
    first = await wanted({})
    assert [bool(first[region].pool.env) for region in REGIONS] == [True] * 3 + [False] * 2
    assert len(large) == 3
    again = await wanted(by_id(first))
    assert (again, large) == (first, [])
    await put(system, "b", env={"REGION": "other"})
    await put(system, "c", size=0)
    await put(system, "d")
    changed = await wanted(by_id(again))
    assert len(large) == 2
    assert changed["b"].pool.env == {"REGION": "other"}
    assert changed["d"].pool.env == {"REGION": "d"}
    assert changed["a"].pool is again["a"].pool
    assert not changed["c"].pool.env
