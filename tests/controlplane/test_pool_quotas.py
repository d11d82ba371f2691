"""Warm pools count toward the quotas of cores and memory by their size."""

from typing import Any

import pytest

from tests.support.controlplane.system import Answer, System, assert_error

SMALL: dict[str, Any] = {"reservation": {"cpu": 1, "ram": 256}, "limits": {"cpu": 8, "ram": 4096}}


@pytest.fixture
async def system(system: System) -> System:
    await system.make_application(regions=["local", "elsewhere"], **SMALL)
    await system.make_application(tag=None, name="other", **SMALL)
    return system


async def usage(system: System) -> dict[str, float]:
    accounts = (await system.read("/operator/account"))["accounts"]
    (alice,) = (account for account in accounts if account["name"] == "alice")
    return dict(alice["usage"])


async def put(system: System, size: int, place: str = "game/elsewhere", **more: Any) -> Answer:
    return await system.call("PUT", f"/warm-pool/{place}", json={"size": size, **more})


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        ({"cpu": 3.9}, "cores"),
        ({"ram": 768}, "memory"),
    ],
)
async def test_pool_too_large_is_402(system: System, limits: dict[str, float], name: str) -> None:
    await system.limit(sessions=1, **limits)
    text = f"cannot keep the warm pool: the account's quota of {name} is exhausted"
    assert_error(await put(system, 4), 402, whole=text)
    assert await system.read("/warm-pool") == {"warmPools": []}
    assert (await put(system, 3)).status == 204
    assert_error(await put(system, 1, "other/local"), 402, whole=text)
    assert (await put(system, 9, "other/local", enabled=False)).status == 204
    assert_error(await put(system, 9, "other/local"), 402, whole=text)
    assert (await put(system, 2)).status == 204
    assert (await put(system, 1, "other/local")).status == 204


async def test_sessions_and_pools_count_together(system: System) -> None:
    await system.limit(cpu=3)
    assert (await put(system, 2)).status == 204
    assert (await system.start(id="a")).status == 201
    assert await usage(system) == {"sessions": 1, "cpu": 3.0, "ram": 768.0}
    text = "cannot start: the account's quota of cores is exhausted"
    assert_error(await system.start(id="b"), 402, whole=text)
    text = "cannot keep the warm pool: the account's quota of cores is exhausted"
    assert_error(await put(system, 3), 402, whole=text)
    assert (await put(system, 1)).status == 204
    assert (await system.start(id="b")).status == 201
    assert (await system.call("DELETE", "/warm-pool/game/elsewhere")).status == 204
    assert (await system.start(id="c")).status == 201
    assert await usage(system) == {"sessions": 3, "cpu": 3.0, "ram": 768.0}


async def test_a_reservation_cannot_grow_beyond_what_its_pools_may_hold(system: System) -> None:
    await system.limit(cpu=4, ram=2048)
    assert (await put(system, 2)).status == 204
    text = "cannot keep the warm pool: the account's quota of {} is exhausted"
    refused = await system.edit(reservation={"cpu": 2.5, "ram": 256}, tagKeep=9)
    assert_error(refused, 402, whole=text.format("cores"))
    refused = await system.edit(reservation={"cpu": 1, "ram": 2000})
    assert_error(refused, 402, whole=text.format("memory"))
    applications = (await system.read("/application"))["applications"]
    assert applications[0]["reservation"] == {"cpu": 1.0, "ram": 256.0}
    assert applications[0]["tagKeep"] == 5
    assert (await system.edit(reservation={"cpu": 2, "ram": 1024})).status == 204
    # Its region is removed with the pool and its usage.
    fields: dict[str, Any] = {"regions": ["local"], "reservation": {"cpu": 4, "ram": 2048}}
    assert (await system.edit(**fields)).status == 204


async def test_a_lower_quota_ends_nothing_and_refuses_what_is_more(system: System) -> None:
    assert (await put(system, 5)).status == 204
    await system.limit(cpu=2)
    (pool,) = (await system.read("/warm-pool"))["warmPools"]
    assert pool["size"] == 5
    assert_error(await system.start(), 402)
    assert_error(await put(system, 6), 402)
    for body in ({"size": 5, "labels": {"a": "b"}}, {"size": 4}, {"size": 4, "enabled": False}):
        assert (await put(system, **body)).status == 204
    assert_error(await put(system, 4), 402)
    assert (await system.start()).status == 201


async def test_pools_of_an_account_are_limited(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.storage.tables.applications.warm_pools.MAX_POOLS", 2)
    for place in ("game/local", "game/elsewhere"):
        assert (await put(system, 0, place)).status == 204
    assert_error(await put(system, 0, "other/local"), 409)
    assert (await put(system, 1, "game/local")).status == 204
    assert (await system.call("DELETE", "/warm-pool/game/local")).status == 204
    assert (await put(system, 0, "other/local")).status == 204
