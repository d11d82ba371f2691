"""Which node pools allow applications with capabilities, and what follows if not."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.controlplane.system import APPLICATION, System, assert_error, eventually
from tiltyard.agent.v1 import agent_pb2

DROPS: dict[str, Any] = {**APPLICATION, "capabilities": ["SETUID", "SETGID"]}


async def allow(system: System, capabilities: Sequence[str], pool: str = "default") -> None:
    body = {"capabilities": capabilities}
    (await system.call("PUT", f"/operator/node-pool/{pool}", json=body)).expect(204)


async def obstacles(system: System) -> list[str]:
    query = "/operator/placement?account=alice&image=game&location=local"
    [host] = (await system.read(query))["hosts"]
    return [obstacle["kind"] for obstacle in host["obstacles"]]


@pytest.mark.parametrize(
    "allowed",
    [
        [],
        ["CHOWN"],
        ["SETGID", "KILL"],
    ],
)
async def test_an_application_is_refused_unless_its_node_pool_allows_each_capability(
    system: System, allowed: list[str]
) -> None:
    await allow(system, allowed)
    refused = await system.call("POST", "/application", json=DROPS)
    assert_error(refused, 422, "capabilities")
    [violation] = refused.json["violations"]
    assert "SETUID" in violation["description"]
    assert not set(allowed) & set(violation["description"].replace(",", "").split())
    await allow(system, [*allowed, "SETUID", "SETGID"])
    assert (await system.call("POST", "/application", json=DROPS)).status == 201


async def test_an_edit_is_refused_unless_the_node_pool_allows_it(system: System) -> None:
    await system.make_application(tag=None)
    assert_error(await system.edit(capabilities=["KILL"]), 422, "capabilities")
    await allow(system, ["KILL"], pool="open")
    assert_error(await system.edit(capabilities=["KILL"]), 422, "capabilities")
    assert (await system.edit(capabilities=["KILL"], nodePool="open")).status == 204
    assert_error(await system.edit(nodePool="default"), 422, "capabilities")
    both: dict[str, Any] = {"capabilities": ["KILL"], "networkMode": "host", "nodePool": "default"}
    assert_error(await system.edit(**both), 422, "networkMode", "capabilities")


@pytest.mark.parametrize(
    "name",
    [
        "SYS_ADMIN",
        "SYS_PTRACE",
        "NET_ADMIN",
        "NET_RAW",
        "ALL",
        "CAP_CHOWN",
        "chown",
        "",
    ],
)
async def test_no_other_capability_can_be_named(system: System, name: str) -> None:
    bad = {**APPLICATION, "capabilities": [name]}
    assert_error(await system.call("POST", "/application", json=bad), 422, "capabilities[0]")
    path = "/operator/node-pool/default"
    refused = await system.call("PUT", path, json={"capabilities": [name]})
    assert_error(refused, 422, "capabilities[0]")


async def test_withdrawn_permission_stops_new_starts_and_standbys(system: System) -> None:
    await allow(system, ["SETUID", "SETGID", "CHOWN"])
    await system.make_application(capabilities=["SETUID", "SETGID"])
    assert (await system.start(id="old")).status == 201
    assert await system.locations() == ["local"]
    (await system.call("PUT", "/warm-pool/game/local", json={"size": 2})).expect(204)
    await eventually(lambda: len(system.agent.standbys) == 2)

    await allow(system, ["SETUID"])
    for _ in range(2):
        refused = await system.start(id="new")
        assert_error(refused, 422, "image")
        [violation] = refused.json["violations"]
        text = "node pool default does not allow the capabilities SETGID"
        assert violation["description"] == text
        assert await system.locations() == []
        assert await obstacles(system) == ["capabilities"]
        await eventually(lambda: not system.agent.standbys)
        assert (await system.read("/session/old"))["status"] == "running"
        await system.restart()

    await allow(system, ["SETUID", "SETGID"])
    assert (await system.start(id="new")).status == 201
    assert await obstacles(system) == []


async def test_hosts_are_asked_for_the_capabilities_of_a_session(
    system: System,
) -> None:
    await allow(system, ["SETUID", "SETGID"])
    await system.make_application(capabilities=["SETUID", "SETGID"], init="image")
    assert (await system.start()).status == 201
    [started] = system.agent.started
    asked = [agent_pb2.CAPABILITY_SETGID, agent_pb2.CAPABILITY_SETUID]
    assert list(started.spec.capabilities) == asked
    assert started.spec.image_init
