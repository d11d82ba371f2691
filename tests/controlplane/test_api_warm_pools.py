"""PUT, GET and DELETE of warm pools, stored and validated, without enabled tags."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from controlplane.domain.access.audit import ITSELF
from controlplane.domain.applications.warm_pools import WantedPool
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.applications.standby_orders import wanted as wanted_pools
from tests.support.controlplane.system import Answer, System, assert_error, token_id
from tests.support.controlplane.transactions import connection_of, opened

POOL: dict[str, Any] = {
    "size": 3,
    "enabled": False,
    "env": {"MODE": "$TILTYARD_HOST", "é": "🎮"},
    "args": ["--map", "dust", "--map"],
    "labels": {"mode": "ffa", "": "", "a.b": '"'},
    "claimSignal": "SIGUSR1",
}
SHOWN = {"image": "game", "location": "local", "ready": 0}
BARE: dict[str, Any] = {"enabled": True, "env": {}, "args": [], "labels": {}, "claimSignal": None}

pytestmark = pytest.mark.system(
    regions=("local", "elsewhere", "third"),
    application={"tag": None, "regions": ["local", "elsewhere"]},
)


async def put(system: System, body: Any, place: str = "game/local", **more: Any) -> Answer:
    return await system.call("PUT", f"/warm-pool/{place}", json=body, **more)


async def remove(system: System, place: str = "game/local", **more: Any) -> Answer:
    return await system.call("DELETE", f"/warm-pool/{place}", **more)


async def pools(system: System, account: str = "alice") -> Any:
    answer = await system.read("/warm-pool", account=account)
    assert set(answer) == {"warmPools"}
    return answer["warmPools"]


async def events(system: System) -> list[tuple[Any, ...]]:
    """Read the audit events of pools, without those of a pool that lacks standbys for a while."""
    found = await system.events("warm_pool.%", "kind, account, actor, address, object, data")
    by_callers = [event for event in found if event[2] != ITSELF.name]
    return [(*event[:-1], json.loads(event[-1])) for event in by_callers]


async def stored(system: System) -> dict[str, tuple[str, int]]:
    """Read the id and the revision of each pool by its region."""
    rows = await system.rows("SELECT location, id, revision FROM warm_pool")
    return {location: (pool_id, revision) for location, pool_id, revision in rows}


async def test_a_pool_keeps_its_settings_until_it_is_removed(system: System) -> None:
    assert await pools(system) == []
    answer = await put(system, POOL)
    assert answer.status == 204
    assert answer.body == b""
    assert await pools(system) == [SHOWN | POOL]
    # The whole pool is replaced: absent or null fields get their defaults.
    for body in ({"size": 0}, {"size": 0, "enabled": None, "env": None, "args": None}):
        assert (await put(system, POOL)).status == 204
        assert (await put(system, body)).status == 204
        assert await pools(system) == [SHOWN | BARE | {"size": 0}]
    answer = await remove(system)
    assert answer.status == 204
    assert answer.body == b""
    assert await pools(system) == []
    assert_error(await remove(system), 404)


async def test_pools_are_listed_by_application_and_region(system: System) -> None:
    await system.make_application(tag=None, name="a.game", regions=["local"])
    for number, place in enumerate(("game/local", "a.game/local", "game/elsewhere")):
        assert (await put(system, {"size": 1000 - number}, place)).status == 204
    found = [(f"{pool['image']}/{pool['location']}", pool["size"]) for pool in await pools(system)]
    assert found == [("a.game/local", 999), ("game/elsewhere", 998), ("game/local", 1000)]
    assert (await remove(system, "game/elsewhere")).status == 204
    assert [pool["image"] for pool in await pools(system)] == ["a.game", "game"]


async def test_a_pool_keeps_its_id_and_each_change_increments_its_revision(system: System) -> None:
    await put(system, POOL)
    pool_id, revision = (await stored(system))["local"]
    for name, value in BARE.items():
        for changed in (POOL | {name: value}, POOL):
            await put(system, changed)
            assert await stored(system) == {"local": (pool_id, revision + 1)}
            await put(system, changed)  # changes nothing
            assert await stored(system) == {"local": (pool_id, revision + 1)}
            revision += 1
    await remove(system)
    await put(system, POOL)
    assert (await stored(system))["local"][0] != pool_id


async def test_changes_are_audited_without_possible_secrets(system: System) -> None:
    by = ("alice", token_id(system.tokens["alice"]), "127.0.0.1", "game/local")
    await put(system, POOL)
    await put(system, POOL)  # changes nothing
    await put(system, {"size": 5})
    await remove(system)
    assert_error(await remove(system), 404)
    assert await events(system) == [
        ("warm_pool.set", *by, {"size": 3, "enabled": False}),
        ("warm_pool.set", *by, {"size": 5, "enabled": True}),
        ("warm_pool.removed", *by, {}),
    ]


async def test_unknown_images_and_locations_are_404(system: System) -> None:
    await system.make_application(tag=None, name="theirs", account="bob")
    places = ("none/local", "theirs/local", "game/none", "game/third", "game/loca", "Game/local")
    for place in places:
        assert_error(await put(system, POOL, place), 404)
        assert_error(await put(system, {}, place), 422, "size")  # the body comes first
        assert_error(await remove(system, place), 404)
    assert_error(await remove(system), 404)  # the place is known, and has no pool
    assert await events(system) == []


async def test_accounts_do_not_see_each_others_pools(system: System) -> None:
    await system.make_application(tag=None, account="bob")
    await put(system, POOL)
    assert await pools(system, "bob") == []
    assert_error(await remove(system, account="bob"), 404)
    assert (await put(system, {"size": 9}, account="bob")).status == 204
    theirs = [SHOWN | BARE | {"size": 9}]
    assert await pools(system) == [SHOWN | POOL]
    assert await pools(system, "bob") == theirs
    assert (await remove(system)).status == 204
    assert await pools(system) == []
    assert await pools(system, "bob") == theirs


async def test_removing_a_region_from_an_application_removes_its_pool(system: System) -> None:
    await system.make_application(tag=None, name="other", regions=["local"])
    for place in ("game/local", "game/elsewhere", "other/local"):
        await put(system, {"size": 2}, place)
    before = await events(system)

    assert (await system.edit(tagKeep=9)).status == 204
    assert (await system.edit(regions=["elsewhere", "none"])).status == 404
    assert (await system.edit(regions=["elsewhere", "local", "third"])).status == 204
    assert await events(system) == before
    assert (await system.edit(regions=["elsewhere"])).status == 204
    *same, removed = await events(system)
    assert same == before
    by = ("alice", token_id(system.tokens["alice"]), "127.0.0.1", "game/local")
    assert removed == ("warm_pool.removed", *by, {})
    assert_error(await put(system, POOL), 404)
    assert (await system.edit(regions=["elsewhere", "local"])).status == 204
    found = [(pool["image"], pool["location"]) for pool in await pools(system)]
    assert found == [("game", "elsewhere"), ("other", "local")]


REGIONS = ("a", "b", "c", "d", "e")


@pytest.fixture
async def store(system: System) -> AsyncIterator[Store]:
    """Open the database a second time, since the control plane also reads pools."""
    async with opened(system.config.database) as store:
        yield store


@pytest.mark.system(
    regions=("local", *REGIONS), application={"tag": None, "regions": list(REGIONS)}
)
async def test_only_pools_that_were_changed_are_read_again(system: System, store: Store) -> None:
    """Their env, args and labels may be large."""

    async def change(region: str, **fields: Any) -> None:
        body = {"size": 1, "env": {"REGION": region}, "args": ["x"], "labels": {"y": "z"}}
        (await put(system, body | fields, f"game/{region}")).expect(204)

    for region in REGIONS[:3]:
        await change(region)
    await change("d", size=0)
    await change("e", enabled=False)
    large: list[str] = []

    async def wanted(known: dict[str, WantedPool]) -> dict[str, WantedPool]:
        large.clear()
        return {each.pool.location: each for each in await wanted_pools(store, known)}

    def by_id(found: dict[str, WantedPool]) -> dict[str, WantedPool]:
        return {wanted.pool.id: wanted for wanted in found.values()}

    def note(sql: str) -> None:
        if " env," in sql:
            large.append(sql)

    await store.read(lambda db: connection_of(db).set_trace_callback(note))
    first = await wanted({})
    assert [bool(first[region].pool.env) for region in REGIONS] == [True] * 3 + [False] * 2
    assert len(large) == 3
    again = await wanted(by_id(first))
    assert again == first
    assert large == []
    await change("b", env={"REGION": "other"})
    await change("c", size=0)
    await change("d")
    changed = await wanted(by_id(again))
    assert len(large) == 2
    assert changed["b"].pool.env == {"REGION": "other"}
    assert changed["d"].pool.env == {"REGION": "d"}
    assert changed["a"].pool is again["a"].pool
    assert not changed["c"].pool.env
