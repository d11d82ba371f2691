"""An engine that answers as Docker Engine 29 does: no real one has been tested.

It refuses versions of the API below 1.44, and has its images in the store of containerd.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agent.docker.answers import CONTAINERD_ROOT, has_containerd_store, image_root
from agent.docker.engine import DockerEngine
from agent.docker.facts import has_layer_quota
from agent.doctor.gather import engine_facts
from agent.domain.errors import AgentError
from tests.support.agent.scripted_engine import BRIDGE, INFO

LEAST_API = (1, 44)
TOO_OLD = "client version {} is too old. Minimum supported API version is 1.44"
VERSION = {"ApiVersion": "1.52", "MinAPIVersion": "1.44", "Os": "linux", "Arch": "amd64"}
STORE = {
    "Driver": "overlayfs",
    "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]],
    "DockerRootDir": "/var/lib/docker",
}
ANSWERS: dict[str, Any] = {
    "/info": INFO | STORE | {"ServerVersion": "29.0.0"},
    "/networks": [BRIDGE],
    "/containers/json": [],
}


async def answered(request: web.BaseRequest) -> web.StreamResponse:
    """Answer as the engine does."""
    if request.path == "/version":
        return web.json_response(VERSION)
    _, prefix, path = request.path.split("/", 2)
    api = prefix.removeprefix("v")
    if tuple(map(int, api.split("."))) < LEAST_API:
        return web.json_response({"message": TOO_OLD.format(api)}, status=400)
    return web.json_response(ANSWERS[f"/{path}"])


@pytest.fixture
async def engine_29(tmp_path: Path) -> AsyncIterator[Path]:
    runner = web.ServerRunner(web.Server(answered), shutdown_timeout=0)
    await runner.setup()
    path = tmp_path / "engine.sock"
    await web.UnixSite(runner, str(path)).start()
    yield path
    await runner.cleanup()


async def test_doctor_asks_in_a_version_of_the_api_that_the_engine_serves(
    engine_29: Path,
) -> None:
    facts = await asyncio.to_thread(engine_facts, engine_29, 5.0)
    assert facts.api == "1.52"
    assert facts.info["ServerVersion"] == "29.0.0"
    assert facts.data_root == Path("/var/lib/docker")
    assert facts.image_root == Path(CONTAINERD_ROOT)
    assert facts.kept_apart


async def test_agent_watches_the_disk_of_the_images(engine_29: Path) -> None:
    engine = DockerEngine(str(engine_29))
    try:
        info = await engine.info()
    finally:
        await engine.close()
    assert info.data_root == "/var/lib/docker"
    assert info.image_root == CONTAINERD_ROOT


async def test_doctor_reports_an_engine_that_is_too_old(
    engine_29: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VERSION, "ApiVersion", "1.40")
    with pytest.raises(AgentError, match=r"has API 1\.40, and 1\.41 is needed"):
        await asyncio.to_thread(engine_facts, engine_29, 5.0)


@pytest.mark.parametrize(
    ("status", "is_containerds"),
    [
        (STORE["DriverStatus"], True),
        ([["Backing Filesystem", "extfs"], ["Supports d_type", "true"]], False),
        ([["driver-type"]], False),
        (None, False),
    ],
)
def test_store_of_images_is_that_of_the_driver_status(
    status: object, is_containerds: bool
) -> None:
    info = {"DriverStatus": status, "DockerRootDir": "/data"}
    assert has_containerd_store(info) is is_containerds
    assert image_root(info) == (CONTAINERD_ROOT if is_containerds else "/data")


def test_containers_in_the_store_of_containerd_have_no_quota() -> None:
    assert has_layer_quota({"Driver": "btrfs"}, "")
    assert not has_layer_quota({"Driver": "btrfs", "DriverStatus": STORE["DriverStatus"]}, "")
