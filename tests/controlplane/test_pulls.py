"""Pulls as operators see them, from enabling a tag until its image is present."""

import logging
from typing import Any

import pytest

from tests.support.controlplane.fake_agent import refusing
from tests.support.controlplane.system import System, eventually, eventually_equals
from tiltyard.runtime.clock import to_ms

pytestmark = [pytest.mark.system(agents=2), pytest.mark.usefixtures("quick_pulls")]


async def _pulls(system: System, agent: str = "a0") -> list[dict[str, Any]]:
    return list((await system.read(f"/operator/agent/{agent}"))["pulls"])


@pytest.mark.parametrize("waits", [False, True])
async def test_pull_progress_is_shown(system: System, waits: bool) -> None:
    await system.make_application(tag=None)
    system.agent.pull_waits = waits
    system.agent.during_pull = system.agent.hang
    image = await system.enable("v1", pulled_by=())

    await system.until(
        "/operator/agent/a0", lambda shown: any(pull["receivedBytes"] for pull in shown["pulls"])
    )
    assert await _pulls(system) == [
        {
            "image": image,
            "state": "queued" if waits else "pulling",
            "layers": 2,
            "layersDone": 1,
            "receivedBytes": 4096,
            "failures": 0,
            "cause": None,
            "failed": None,
        }
    ]
    await eventually(lambda: image in system.agents[1].images)
    await eventually_equals(lambda: _pulls(system, "a1"), [])


async def test_cause_of_a_failed_pull_is_shown_and_logged(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    await system.make_application(tag=None)
    system.agent.before_pull = refusing("DISK_FULL", "no room below /var/lib/docker")
    began = to_ms(system.control_plane.clock.time())
    with caplog.at_level(logging.WARNING):
        image = await system.enable("v1", pulled_by=())
        await system.until(
            "/operator/agent/a0", lambda shown: any(p["failures"] >= 2 for p in shown["pulls"])
        )
    (pull,) = await _pulls(system)
    assert (pull["image"], pull["state"]) == (image, "failed") or pull["state"] == "pulling"
    assert pull["cause"] == "disk_full: no room below /var/lib/docker"
    assert began <= pull["failed"] <= to_ms(system.control_plane.clock.time())
    logged = [record.getMessage() for record in caplog.records]
    assert f"pull failed image={image} error={pull['cause']} agent=a0" in logged
    system.agent.before_pull = None
    await eventually(lambda: image in system.agent.images)
    await eventually_equals(lambda: _pulls(system), [])


async def test_startable_tag_is_preferred_to_a_newer_one_on_a_drained_host(system: System) -> None:
    await system.make_application(tag="v1")
    drained, other = system.agents
    other.during_pull = other.hang
    await system.enable("v2", pulled_by=[drained])
    drained.change_host(draining=True)
    await system.has_reported(drained.name, draining=True)
    assert (await system.start(id="s")).status == 201
    assert (await system.read("/session/s"))["tag"] == "v1"
    assert (await system.start(version="v2")).status == 420


async def test_hosts_receive_the_login_of_the_registry_of_an_image(system: System) -> None:
    address = system.registry.address.replace("127.0.0.1", "localhost")
    body = {"address": address, "username": "robot", "password": "s3cret"}
    assert (await system.call("PUT", "/operator/registry/private", json=body)).status == 204
    await system.make_application()
    await system.make_application(name="secret", registry="private", tag=None)
    assert (await system.enable_tag(name="secret")).status == 204
    await eventually(lambda: len(system.agent.logins) == 2)
    assert system.agent.logins == [None, ("robot", "s3cret")]
