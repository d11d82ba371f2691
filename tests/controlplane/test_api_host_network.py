"""Which node pools allow applications in the network of the host, and what follows if not."""

from typing import Any

from tests.support.controlplane.system import APPLICATION, System, assert_error, eventually

IN_HOST: dict[str, Any] = {**APPLICATION, "networkMode": "host"}


async def allow(system: System, *, host_network: bool | None, pool: str = "default") -> None:
    body = {} if host_network is None else {"hostNetwork": host_network}
    (await system.call("PUT", f"/operator/node-pool/{pool}", json=body)).expect(204)


async def obstacles(system: System) -> list[str]:
    query = "/operator/placement?account=alice&image=game&location=local"
    [host] = (await system.read(query))["hosts"]
    return [obstacle["kind"] for obstacle in host["obstacles"]]


async def test_an_application_in_the_hosts_network_is_refused_unless_its_node_pool_allows_it(
    system: System,
) -> None:
    assert_error(await system.call("POST", "/application", json=IN_HOST), 422, "networkMode")
    # Together with other violations, and not for an unknown node pool.
    bad = {**IN_HOST, "registry": "no", "regions": ["no"]}
    refused = await system.call("POST", "/application", json=bad)
    assert_error(refused, 422, "networkMode", "registry", "regions[0]")
    bad = {**IN_HOST, "nodePool": "no"}
    assert_error(await system.call("POST", "/application", json=bad), 422, "nodePool")

    await system.make_application(tag=None)
    assert_error(await system.edit(networkMode="host"), 422, "networkMode")
    await allow(system, host_network=True, pool="open")
    assert_error(await system.edit(networkMode="host"), 422, "networkMode")
    assert (await system.edit(networkMode="host", nodePool="open")).status == 204
    assert_error(await system.edit(nodePool="default"), 422, "networkMode")
    [listed] = (await system.read("/application"))["applications"]
    assert listed["networkMode"] == "host"
    assert listed["nodePool"] == "open"


async def test_revoked_permission_of_a_node_pool_stops_new_starts(system: System) -> None:
    await allow(system, host_network=True)
    await system.make_application(networkMode="host")
    assert (await system.start(id="old")).status == 201
    assert await system.locations() == ["local"]
    (await system.call("PUT", "/warm-pool/game/local", json={"size": 2})).expect(204)
    await eventually(lambda: len(system.agent.standbys) == 2)

    await allow(system, host_network=None)
    for _ in range(2):
        assert_error(await system.start(id="new"), 422, "image")
        assert await system.locations() == []
        assert await obstacles(system) == ["host_network"]
        await eventually(lambda: not system.agent.standbys)
        assert (await system.read("/session/old"))["status"] == "running"
        await system.restart()

    await allow(system, host_network=True)
    assert (await system.start(id="new")).status == 201
    assert await obstacles(system) == []


async def test_the_rules_of_a_removed_node_pool_are_forgotten(system: System) -> None:
    await system.make_application(tag=None)
    await allow(system, host_network=False, pool="gone")
    assert (await system.call("DELETE", "/operator/node-pool/gone")).status == 204
    unknown = {"networkMode": "host", "nodePool": "gone"}
    created = await system.call("POST", "/application", json={**APPLICATION, **unknown})
    assert_error(created, 422, "nodePool")
    assert_error(await system.edit(**unknown), 404)


async def test_settings_file_allows_host_network_despite_the_rules(system: System) -> None:
    async def listed() -> Any:
        pools = (await system.read("/operator/node-pool"))["nodePools"]
        return {pool["name"]: pool["hostNetwork"] for pool in pools}

    system.settings["host_network_pools"] = ("default",)
    await system.restart()
    await allow(system, host_network=False)
    assert await listed() == {"default": True}
    await system.make_application(networkMode="host")
    assert (await system.start()).status == 201
    system.settings["host_network_pools"] = ()
    await system.restart()
    assert await listed() == {"default": False}
    assert_error(await system.start(), 422, "image")
