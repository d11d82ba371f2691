"""Regions, node pools and registries, as operators create, change and remove them."""

import asyncio
from typing import Any

import pytest

from controlplane.app.control_plane import ControlPlane
from controlplane.domain.applications.registries import Registry
from controlplane.domain.errors import StoreError
from controlplane.domain.names import is_name
from controlplane.settings.registries import RegistryConfig
from controlplane.storage.tables.applications import registries
from controlplane.storage.tables.applications.registries import declare_registries
from tests.support.authority import AUTHORITY
from tests.support.controlplane.system import (
    APPLICATION,
    PATIENCE,
    Answer,
    System,
    assert_error,
)
from tests.support.controlplane.transactions import blocked, opened

THINGS = {"region": "regions", "node-pool": "nodePools", "registry": "registries"}
"""The path segment, and the property of the list."""
BODIES: dict[str, Any] = {"registry": {"address": "registry.example"}}
DECLARED = {"region": "local", "node-pool": "default", "registry": "local"}


class Operated(System):
    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        return await self.call(method, f"/operator/{path}", json=body)

    async def put(self, thing: str, name: str, body: Any = None) -> Answer:
        if body is None and thing != "region":
            body = BODIES.get(thing, {})
        return await self.ask("PUT", f"{thing}/{name}", body)

    async def listed(self, thing: str) -> dict[str, dict[str, Any]]:
        rows = (await self.read(f"/operator/{thing}"))[THINGS[thing]]
        assert [row["name"] for row in rows] == sorted(row["name"] for row in rows)
        return {row["name"]: row for row in rows}

    async def kinds(self, name: str) -> list[str]:
        """The audit events of an object, each with the operator's token as its actor."""
        sql = "SELECT kind, actor FROM event WHERE object=? AND account='' ORDER BY sequence"
        rows = await self.rows(sql, name)
        assert {actor for _, actor in rows} <= {self.operator_id}
        return [kind for kind, _ in rows]


pytestmark = pytest.mark.system(kind=Operated)


async def test_a_new_region_can_be_used_and_then_not_removed(system: Operated) -> None:
    assert (await system.put("region", "eu")).status == 204
    assert (await system.put("region", "eu")).status == 204
    used = {"agents": 0, "applications": 0}
    assert (await system.listed("region"))["eu"] == {"name": "eu", "declared": False, **used}
    await system.make_application(tag=None, regions=["eu", "local"])
    listed = await system.listed("region")
    assert listed["eu"]["applications"] == 1
    assert listed["local"] == {"name": "local", "declared": True, "agents": 1, "applications": 1}
    assert_error(await system.ask("DELETE", "region/eu"), 409, details="applications: 1")
    assert (await system.edit(regions=["local"])).status == 204
    assert (await system.ask("DELETE", "region/eu")).status == 204
    assert_error(await system.ask("DELETE", "region/eu"), 404)
    assert "eu" not in await system.listed("region")
    assert_error(await system.edit(regions=["eu"]), 404)
    assert await system.kinds("eu") == ["region.created", "region.removed"]


async def test_a_node_pool_is_changed_and_removed(system: Operated) -> None:
    new = {
        "name": "big",
        "hostNetwork": False,
        "capabilities": [],
        "declared": False,
        "agents": 0,
        "applications": 0,
    }
    for body, strategy in (
        ({"strategy": "spread"}, "spread"),
        ({"strategy": "spread"}, "spread"),
        ({"strategy": "packed"}, "packed"),
        ({"strategy": "spread"}, "spread"),
        ({"strategy": None}, "packed"),
    ):
        assert (await system.put("node-pool", "big", body)).status == 204
        assert (await system.listed("node-pool"))["big"] == {**new, "strategy": strategy}
    assert (await system.listed("node-pool"))["default"]["agents"] == 1
    await system.make_application(tag=None, nodePool="big")
    assert_error(await system.ask("DELETE", "node-pool/big"), 409, details="applications: 1")
    assert (await system.edit(nodePool="default")).status == 204
    assert (await system.ask("DELETE", "node-pool/big")).status == 204
    assert await system.kinds("big") == 4 * ["node_pool.set"] + ["node_pool.removed"]


@pytest.mark.system(kind=Operated, agents=2, application={})
async def test_a_strategy_applies_to_later_starts_and_after_a_restart(system: Operated) -> None:
    async def where() -> set[str]:
        before = {agent.name: len(agent.started) for agent in system.agents}
        for _ in range(4):
            (await system.start()).expect(201)
        return {a.name for a in system.agents if len(a.started) > before[a.name]}

    assert len(await where()) == 1
    assert (await system.put("node-pool", "default", {"strategy": "spread"})).status == 204
    # One host has four sessions: the next ones go to the other until they are equal.
    full = next(agent.name for agent in system.agents if agent.live)
    assert await where() == {"a0", "a1"} - {full}
    await system.restart()
    assert await where() == {"a0", "a1"}
    assert (await system.put("node-pool", "default", {})).status == 204
    assert len(await where()) == 1


async def test_a_registry_is_changed_and_removed(system: Operated) -> None:
    hub = {"address": "registry-1.docker.io", "aliases": ["docker.io", "index.docker.io"]}
    assert (await system.put("registry", "hub", hub)).status == 204
    assert (await system.put("registry", "hub", hub)).status == 204
    listed = await system.listed("registry")
    no_login: dict[str, Any] = {"username": None, "authHosts": [], "private": False, "ca": None}
    used = {"declared": False, "applications": 0}
    assert listed["hub"] == {"name": "hub", **hub, **no_login, **used}
    assert listed["local"]["declared"] is True
    await system.make_application(tag=None, registry="hub", repository="docker.io/redis")
    shown = (await system.read("/application"))["applications"][0]
    assert shown["registry"] == "hub"
    assert shown["repository"] == "library/redis"
    assert_error(await system.ask("DELETE", "registry/hub"), 409, details="applications: 1")
    assert (await system.put("registry", "hub", {"address": "mirror.example:5000"})).status == 204
    assert (await system.listed("registry"))["hub"]["aliases"] == []
    assert (await system.edit(registry="local")).status == 204
    assert (await system.ask("DELETE", "registry/hub")).status == 204
    assert "hub" not in await system.listed("registry")
    assert await system.kinds("hub") == ["registry.set", "registry.set", "registry.removed"]


async def test_tags_use_the_address_of_the_registry_when_enabled(system: Operated) -> None:
    assert (await system.put("registry", "own", {"address": "no.example"})).status == 204
    await system.make_application(tag=None, registry="own")
    # Both addresses are the loopback's; the settings file claims one of them.
    other = f"localhost:{system.registry.address.rpartition(':')[2]}"
    assert (await system.put("registry", "own", {"address": other})).status == 204
    digest = system.registry.push("studio/game", "v1")
    assert (await system.enable_tag()).status == 204
    await system.put("registry", "own", {"address": "elsewhere.example"})
    assert await system.rows("SELECT image FROM tag") == [(f"{other}/studio/game@{digest}",)]


@pytest.mark.parametrize("thing", THINGS)
async def test_a_list_waits_for_no_transaction(system: Operated, thing: str) -> None:
    before = await system.listed(thing)  # the use of the token is noted by now
    async with blocked(system.control_plane.store.run), asyncio.timeout(PATIENCE / 2):
        assert await system.listed(thing) == before


async def test_declared_objects_can_only_be_removed_in_the_file(system: Operated) -> None:
    for thing, name in DECLARED.items():
        before = await system.listed(thing)
        assert_error(await system.ask("DELETE", f"{thing}/{name}"), 409, details="settings file")
        assert (await system.put(thing, name)).status == (409 if thing == "registry" else 204)
        assert await system.listed(thing) == before


async def test_objects_that_are_not_declared_survive_a_restart(system: Operated) -> None:
    for thing in THINGS:
        assert (await system.put(thing, "made")).status == 204
    await system.restart()
    for thing in THINGS:
        assert "made" in await system.listed(thing)
        assert (await system.ask("DELETE", f"{thing}/made")).status == 204
    await system.restart()
    for thing in THINGS:
        assert "made" not in await system.listed(thing)
        assert_error(await system.ask("DELETE", f"{thing}/made"), 404)


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "A-1_b.c",
        "x" * 128,
        "0..",
    ],
)
def test_names_are_letters_digits_and_some_marks(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * 129,
        "a b",
        "a/b",
        "a\n",
        "é",
        ".",
        "..",
        ".a",
        "-a",
        "_a",
    ],
)
def test_names_are_nothing_else(name: str) -> None:
    assert not is_name(name)


async def test_invalid_names_are_refused(system: Operated) -> None:
    for thing in THINGS:
        field = {"node-pool": "nodePool"}.get(thing, thing)
        for name in ("a%2Fb", "%20", "x" * 129, "caf%C3%A9", "a%00b"):
            assert_error(await system.put(thing, name), 422, field)
            assert_error(await system.ask("DELETE", f"{thing}/{name}"), 404)


async def test_registries_with_invalid_certificates_or_logins_are_refused(
    system: Operated,
) -> None:
    """The model's rules are tested in tests/controlplane/test_body_properties."""
    rests = ("é", AUTHORITY[:300], "-----BEGIN PRIVATE KEY-----", "\n" * 2**16)
    for ca in ("x", " ", AUTHORITY[:300], *(AUTHORITY + rest for rest in rests)):
        assert_error(
            await system.put("registry", "new", BODIES["registry"] | {"ca": ca}), 422, "ca"
        )
    for login in ({"password": "x"}, {"username": None, "password": "x"}):
        refused = await system.put("registry", "new", BODIES["registry"] | login)
        assert_error(refused, 422, "password")
    assert "new" not in await system.listed("registry")


async def test_no_two_registries_claim_the_same_address(system: Operated) -> None:
    one = {"address": "one.example", "aliases": ["uno.example"]}
    assert (await system.put("registry", "one", one)).status == 204
    for body in (
        {"address": "one.example"},
        {"address": "UNO.example"},
        {"address": "two.example", "aliases": ["uno.example"]},
        {"address": system.registry.address},
    ):
        assert_error(await system.put("registry", "two", body), 409, details=" already")
    assert (await system.put("registry", "two", {"address": "one.example:443"})).status == 204
    assert (await system.put("registry", "one", one | {"aliases": []})).status == 204
    assert (await system.put("registry", "two", {"address": "uno.example"})).status == 204


async def test_a_region_is_never_removed_under_a_new_application(system: Operated) -> None:
    for number in range(20):
        await system.put("region", "eu")
        body = APPLICATION | {"name": f"game-{number}", "regions": ["eu"]}
        made, removed = await asyncio.gather(
            system.call("POST", "/application", json=body), system.ask("DELETE", "region/eu")
        )
        assert made.status in {201, 422}
        assert removed.status == (409 if made.status == 201 else 204)
        regions = "SELECT 1 FROM application_region WHERE region NOT IN"
        assert not await system.rows(f"{regions} (SELECT name FROM region)")
        await system.rows("DELETE FROM application")


async def test_a_file_that_claims_an_address_set_by_the_api_is_refused(system: Operated) -> None:
    own = {"address": "own.example", "aliases": ["alias.example"]}
    assert (await system.put("registry", "own", own)).status == 204
    await system.stop_serving()
    before = system.config
    for entry in (
        RegistryConfig(name="new", address="OWN.example"),
        RegistryConfig(name="new", address="new.example", aliases=("alias.example",)),
    ):
        config = before.model_copy(update={"registries": (*before.registries, entry)})
        with pytest.raises(StoreError, match="'new': 'own', created through the API"):
            await ControlPlane(config).serve(asyncio.Event())
    await system.serve()
    assert "new" not in await system.listed("registry")
    # It may change its own declarations, even to an address of another of them.
    await system.stop_serving()
    async with opened(before.database) as store:
        for one, two in (("1.example", "2.example"), ("2.example", "1.example")):
            named = {"one": one, "two": two}.items()
            declared = [Registry(name, address, ()) for name, address in named]
            await store.run(declare_registries, declared)
        assert (await store.run(registries.find))["one"].address == "2.example"
