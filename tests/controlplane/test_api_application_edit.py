"""PUT /application/{name}: what changes, what is refused, and what stays."""

import asyncio
import json
from typing import Any

import pytest

from controlplane.settings.model import AgentConfig, Config
from controlplane.settings.registries import RegistryConfig
from tests.support.controlplane.background import has_its_images
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.controlplane.system import (
    APPLICATION,
    System,
    assert_error,
    eventually,
)
from tests.support.hold import Hold
from tiltyard.agent.v1 import agent_pb2

PLACES = {"a0": ("local", "default"), "a1": ("elsewhere", "default"), "a2": ("local", "big")}


class Places(System):
    """Three hosts: one in each region, and one in another node pool; two names of registries."""

    @property
    def mirror(self) -> str:
        """Another address of the loopback: no two registries may claim one address."""
        return self.registry.address.replace("127.0.0.1", "localhost")

    @property
    def config(self) -> Config:
        config = super().config
        found = {
            "node_pools": ("default", "big"),
            "host_network_pools": ("default", "big"),
            "registries": (
                *config.registries,
                RegistryConfig(name="mirror", address=self.mirror, aliases=("mirror.example",)),
                RegistryConfig(name="hub", address="registry-1.docker.io", aliases=("docker.io",)),
            ),
            "agents": tuple(
                AgentConfig(name=a.name, address=a.address, region=region, node_pool=node_pool)
                for a in self.agents
                for region, node_pool in [PLACES[a.name]]
            ),
        }
        return config.model_copy(update=found)

    async def application(self) -> Any:
        return (await self.read("/application"))["applications"][0]

    async def allow_capabilities(self) -> None:
        """Allow those that the tests ask for in both node pools."""
        for pool in self.config.node_pools:
            body = {"capabilities": ["CHOWN", "SETUID"]}
            (await self.call("PUT", f"/operator/node-pool/{pool}", json=body)).expect(204)

    async def pulled(self, agent: FakeAgent, image: str) -> None:
        await eventually(lambda: self.has(agent.name, image))


pytestmark = pytest.mark.system(kind=Places, agents=3, application={"tag": None})


async def test_every_field_can_change_and_absent_ones_stay(system: Places) -> None:
    await system.allow_capabilities()
    shown: dict[str, Any] = dict(APPLICATION)
    changes: dict[str, Any] = {
        "registry": "mirror",
        "repository": "studio/other",
        "tagKeep": 7,
        "networkMode": "host",
        "limits": {"cpu": 2, "ram": 512, "gpu": 1, "disk": 1.5, "pids": 16, "shm": 512},
        "reservation": {"cpu": 0.5, "ram": 128},
        "nodePool": "big",
        "regions": ["elsewhere", "local"],
        "ports": [],
    }
    assert set(changes) == set(APPLICATION) - {"name"}
    changes |= {"stopSignal": "SIGINT", "stopGrace": 30}
    changes |= {"capabilities": ["CHOWN", "SETUID"], "init": "image", "contiguous": True}
    for field, value in changes.items():
        answer = await system.edit(**{**dict.fromkeys(changes), field: value})
        assert answer.status == 204
        assert answer.body == b""
        shown[field] = value
        assert await system.application() == shown
    assert (await system.edit()).status == 204
    assert await system.application() == shown
    events = await system.events("application.changed", "data")
    edited = [json.loads(data)["fields"] for (data,) in events]
    assert len(edited) == len(changes)
    assert edited[0] == ["registry"]


async def test_bad_edits_are_refused_and_change_nothing(system: Places) -> None:
    small = {"cpu": 0.5, "ram": 256}
    cases: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        # On the merged application: cores and memory are 1 and 256.
        ({"reservation": {"cpu": 1, "ram": 257}}, ("reservation",)),
        ({"limits": {"cpu": 1, "ram": 1}, "reservation": {"cpu": 1, "ram": 2}}, ("reservation",)),
        # 422 comes before 404.
        ({"limits": small, "nodePool": "no"}, ("limits",)),
        ({"repository": "../x", "limits": small}, ("limits", "repository")),
    ]
    for changes, fields in cases:
        assert_error(await system.edit(**{"tagKeep": 9, **changes}), 422, *fields)
        assert await system.application() == APPLICATION


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        ("pids", 0),
        ("pids", 15),
        ("pids", 32_769),
        ("pids", 20.5),
        ("pids", "20"),
        ("shm", 0),
        ("shm", 257),
        ("shm", "64"),
    ],
)
async def test_limits_of_processes_and_shared_memory_out_of_bounds_are_refused(
    system: Places, limit: str, value: object
) -> None:
    limits = {"cpu": 1, "ram": 256, limit: value}
    assert_error(await system.edit(limits=limits), 422, f"limits.{limit}")
    assert await system.application() == APPLICATION


async def test_limits_of_processes_and_shared_memory_can_be_reset(system: Places) -> None:
    limits = {"cpu": 1, "ram": 256}
    assert (await system.edit(limits=limits | {"pids": 32_768, "shm": 256})).status == 204
    assert (await system.edit(limits=limits)).status == 204
    assert (await system.application())["limits"] == limits


async def test_unknown_names_in_an_edit_are_404_and_change_nothing(system: Places) -> None:
    for field, value, kind in (
        ("registry", "no", "registry"),
        ("nodePool", "no", "node pool"),
        ("regions", ["local", "no"], "region"),
    ):
        wanted: dict[str, Any] = {"tagKeep": 9, field: value}
        assert_error(await system.edit(**wanted), 404, whole=f"cannot find {kind} 'no'")
    assert len(assert_error(await system.edit(nodePool="x" * 256), 404).json["details"]) < 3000
    assert_error(await system.edit("none", tagKeep=0), 422, "tagKeep")
    assert await system.application() == APPLICATION


async def test_a_repository_is_read_in_its_registry(system: Places) -> None:
    edits: list[tuple[dict[str, Any], str]] = [
        ({"registry": "mirror", "repository": "mirror.example/a/b"}, "a/b"),
        ({"repository": "mirror.example/c"}, "c"),
        ({"registry": "hub"}, "library/c"),
        ({"repository": "d"}, "library/d"),
        ({"tagKeep": 3}, "library/d"),
    ]
    for changes, repository in edits:
        assert (await system.edit(**changes)).status == 204
        assert (await system.application())["repository"] == repository


async def test_concurrent_edits_add_up(system: Places) -> None:
    edits: list[dict[str, Any]] = [
        {"tagKeep": 9},
        {"networkMode": "host"},
        {"nodePool": "big"},
        {"regions": ["elsewhere"]},
        {"ports": []},
        {"registry": "mirror"},
    ]
    answers = await asyncio.gather(*(system.edit(**edit) for edit in edits))
    assert {answer.status for answer in answers} == {204}
    merged: dict[str, Any] = dict(APPLICATION)
    for edit in edits:
        merged |= edit
    assert await system.application() == merged
    sizes: list[dict[str, Any]] = [
        {field: {"cpu": cpu, "ram": 256}} for cpu in (2, 1) for field in ("limits", "reservation")
    ]
    await asyncio.gather(*(system.edit(**edit) for edit in sizes * 10))
    found = await system.application()
    assert found["reservation"]["cpu"] <= found["limits"]["cpu"]


async def test_running_sessions_keep_what_they_started_with(system: Places) -> None:
    await system.allow_capabilities()
    image = await system.enable("v1", pulled_by=[system.agent])
    await system.start(id="old")
    before = await system.read("/session/old")
    changes: dict[str, Any] = {
        "ports": [],
        "limits": {"cpu": 4, "ram": 1024, "disk": 300, "pids": 900, "shm": 700},
        "reservation": {"cpu": 3, "ram": 9},
        "stopSignal": "SIGINT",
        "stopGrace": 30,
        "capabilities": ["SETUID", "CHOWN", "SETUID"],
        "init": "image",
        "contiguous": True,
    }
    assert (await system.edit(**changes, regions=["elsewhere"])).status == 204
    assert await system.read("/session/old") == before
    assert_error(await system.start(), 404)
    assert (await system.edit(regions=["local"])).status == 204
    await eventually(lambda: has_its_images(system.control_plane))
    await system.catches_up()
    await system.pulled(system.agent, image)  # it may have been removed meanwhile
    assert (await system.start(id="new")).json["ports"] == []
    specs = [request.spec for request in system.agent.started]
    assert [len(spec.ports) for spec in specs] == [2, 0]
    assert [spec.reservation.nano_cpus for spec in specs] == [10**9, 3 * 10**9]
    assert [spec.limits.nano_cpus for spec in specs] == [10**9, 4 * 10**9]
    assert [spec.disk_bytes for spec in specs] == [0, 300 * 2**20]
    assert [spec.pids for spec in specs] == [0, 900]
    assert [spec.shm_bytes for spec in specs] == [0, 700 * 2**20]
    assert [spec.stop_signal for spec in specs] == ["", "SIGINT"]
    assert [spec.HasField("stop_grace") for spec in specs] == [False, True]
    assert specs[1].stop_grace.seconds == 30
    assert [spec.image_init for spec in specs] == [False, True]
    assert [spec.contiguous for spec in specs] == [False, True]
    assert list(specs[0].capabilities) == []
    assert list(specs[1].capabilities) == [
        agent_pb2.CAPABILITY_CHOWN,
        agent_pb2.CAPABILITY_SETUID,
    ]
    assert (await system.call("DELETE", "/session/old")).status == 204


async def test_tags_are_pulled_in_new_regions_and_node_pools(system: Places) -> None:
    image = await system.enable("v1", pulled_by=[system.agent])
    here, there, big = system.agents
    assert there.pulled == []
    assert big.pulled == []
    assert (await system.edit(regions=["local", "elsewhere"])).status == 204
    await system.pulled(there, image)
    assert (await system.start(location="elsewhere")).status == 201
    assert (await system.start()).status == 201
    assert (await system.edit(nodePool="big")).status == 204
    await system.pulled(big, image)
    assert (await system.start(id="in-big")).status == 201
    assert [s.identity.session_id for s in big.live] == ["in-big"]
    assert_error(await system.start(location="elsewhere"), 404)
    assert len(here.live) == 1


async def test_tags_keep_their_images_when_the_repository_changes(system: Places) -> None:
    old = await system.enable("v1", pulled_by=[system.agent])
    assert (await system.edit(registry="mirror", repository="studio/next")).status == 204
    assert (await system.start(id="before")).status == 201
    assert await system.read("/tag/local/game/v1") == {"exists": True}
    assert_error(await system.enable_tag(), 404)
    assert (await system.start(id="still")).status == 201
    new = f"{system.mirror}/studio/next@{system.registry.push('studio/next', 'v1')}"
    assert (await system.enable_tag()).status == 204
    await system.pulled(system.agent, new)
    assert (await system.start(id="after")).status == 201
    images = {s.identity.session_id: s.image for s in system.agent.live}
    assert images == {"before": old, "still": old, "after": new}


async def test_an_unneeded_pull_is_cancelled(system: Places) -> None:
    image = await system.enable("v1", pulled_by=[system.agent])
    there = system.agents[1]
    waits = there.before_pull = Hold()
    await system.edit(regions=["local", "elsewhere"])
    await waits.reached.wait()
    await system.edit(regions=["local"])
    await eventually(lambda: has_its_images(system.control_plane))
    there.before_pull = None
    await system.edit(regions=["local", "elsewhere"])
    await system.pulled(there, image)
