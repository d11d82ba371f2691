"""Images on hosts: pulled from when a tag is enabled, removed once it is withdrawn and unused."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from controlplane.domain.access.callers import Caller
from controlplane.domain.access.tokens import ACCOUNT_SCOPES
from controlplane.storage.tables.applications.tags import enable_tag
from tests.support.controlplane.agent_scripts import refuse, refusing
from tests.support.controlplane.background import has_its_images
from tests.support.controlplane.system import (
    System,
    assert_error,
    eventually,
    eventually_equals,
    token_id,
)
from tests.support.controlplane.transactions import Go, blocked, intercept
from tiltyard.runtime.clock import to_ms

pytestmark = [pytest.mark.system(agents=2), pytest.mark.usefixtures("quick_pulls")]


async def pulls_of(system: System, agent: str = "a0") -> list[dict[str, Any]]:
    return list((await system.read(f"/operator/agent/{agent}"))["pulls"])


@pytest.mark.system(unreachable_after=0.4)
async def test_pulls_go_on_with_the_heartbeat_of_a_host_that_was_silent(system: System) -> None:
    pulled: list[object] = []

    async def refused(request: object, context: Any) -> None:
        pulled.append(request)
        await refuse(context, "IMAGE_NOT_FOUND")

    await system.make_application(tag=None)
    system.agent.beat = 0.6  # silent for a third of the time
    system.agent.before_pull = refused
    await system.enable("v1", pulled_by=())
    fleet = system.control_plane.fleet
    for _ in range(2):
        await eventually(lambda: not fleet.is_responsive("a0"))
        count = len(pulled) + 1  # one may be under way
        await eventually(lambda count=count: len(pulled) > count)  # type: ignore[misc]


@pytest.mark.parametrize("waits", [False, True])
async def test_pull_progress_is_shown(system: System, waits: bool) -> None:
    await system.make_application(tag=None)
    system.agent.pull_waits = waits
    system.agent.during_pull = system.agent.hang
    image = await system.enable("v1", pulled_by=())

    await system.until(
        "/operator/agent/a0", lambda shown: any(pull["receivedBytes"] for pull in shown["pulls"])
    )
    assert await pulls_of(system) == [
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
    await eventually_equals(lambda: pulls_of(system, "a1"), [])


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
    (pull,) = await pulls_of(system)
    assert pull["image"] == image
    assert pull["state"] in {"no_room", "pulling"}  # A retry may have begun
    assert pull["cause"] == "disk_full: no room below /var/lib/docker"
    assert began <= pull["failed"] <= to_ms(system.control_plane.clock.time())
    logged = [record.getMessage() for record in caplog.records]
    assert f"pull failed image={image} error={pull['cause']} agent=a0" in logged
    system.agent.before_pull = None
    await eventually(lambda: image in system.agent.images)
    await eventually_equals(lambda: pulls_of(system), [])


async def test_at_most_two_images_of_an_account_are_pulled_to_a_host_at_once(
    system: System,
) -> None:
    await system.make_application(tag=None, tagKeep=10)
    system.agent.during_pull = system.agent.hang
    images = {await system.enable(tag, pulled_by=()) for tag in ("v1", "v2", "v3")}

    async def states() -> list[str]:
        return sorted(pull["state"] for pull in await pulls_of(system))

    await eventually_equals(states, ["pulling", "pulling", "queued"])
    # The other host is not delayed.
    await eventually(lambda: images <= set(system.agents[1].images))


async def test_start_runs_an_older_tag_while_hosts_pull_the_newest(system: System) -> None:
    await system.make_application(tag="v1")
    for agent in system.agents:
        agent.during_pull = agent.hang
    await system.enable("v2", pulled_by=())
    await system.until(
        "/operator/agent/a0", lambda shown: [p["state"] for p in shown["pulls"]] == ["pulling"]
    )
    assert (await system.start(id="s")).status == 201
    assert (await system.read("/session/s"))["tag"] == "v1"
    assert_error(await system.start(version="v2"), 404)


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


async def _exists(system: System, tag: str, image: str = "game") -> bool:
    return bool((await system.read(f"/tag/local/{image}/{tag}"))["exists"])


async def _gone(system: System, image: str) -> None:
    await eventually(lambda: not any(image in agent.images for agent in system.agents))


async def test_only_the_newest_tags_stay(system: System) -> None:
    first = await system.make_application(tagKeep=2)
    second = await system.enable("v2")
    third = await system.enable("v3")
    await _gone(system, first)
    for agent in system.agents:
        assert set(agent.images) == {second, third}
    assert not await _exists(system, "v1")
    assert await _exists(system, "v2")
    assert await _exists(system, "v3")
    assert_error(await system.start(version="v1"), 404)
    assert (await system.start(version="v2")).status == 201
    events = await system.events("tag.withdrawn", "object, actor")
    assert events == [("game:v1", token_id(system.tokens["alice"]))]


async def test_a_tag_that_is_pulled_forward_outlives_others(system: System) -> None:
    first = await system.make_application(tagKeep=2)
    second = await system.enable("v2")
    assert await system.enable("v1") == first
    third = await system.enable("v3")
    await _gone(system, second)
    assert set(system.agent.images) == {first, third}
    # A withdrawn tag can be enabled and pulled again.
    assert await system.enable("v2") == second
    assert await _exists(system, "v2")
    await _gone(system, first)


async def test_smaller_tag_keep_withdraws_at_once(system: System) -> None:
    first = await system.make_application(tagKeep=3)
    second = await system.enable("v2")
    (await system.edit(tagKeep=1)).expect(204)
    await _gone(system, first)
    assert set(system.agent.images) == {second}
    assert not await _exists(system, "v1")


async def test_image_that_never_had_a_tag_is_left_alone(system: System) -> None:
    foreign = "ghcr.io/somebody/else@sha256:" + "e" * 64
    system.agent.add_image(foreign)
    first = await system.make_application(tagKeep=1)
    await system.enable("v2")
    await _gone(system, first)
    assert foreign in system.agent.images
    assert foreign not in system.agent.removal_asked


async def test_an_image_in_use_goes_once_it_is_not(system: System) -> None:
    first = await system.make_application(tagKeep=1)
    system.agent.images_in_use.add(first)
    await system.enable("v2")
    await eventually(lambda: first not in system.agents[1].images)
    await eventually(lambda: system.agent.removal_asked.count(first) >= 3)
    assert first in system.agent.images
    system.agent.images_in_use.clear()
    await _gone(system, first)


async def test_an_image_that_another_application_runs_stays(system: System) -> None:
    image = await system.make_application(tagKeep=1)
    await system.make_application(account="bob")
    await system.enable("v2")
    assert not await _exists(system, "v1")
    third = await system.enable("v3")
    await eventually(lambda: all(len(agent.images) == 2 for agent in system.agents))
    assert set(system.agent.images) == {image, third}
    assert all(image not in agent.removal_asked for agent in system.agents)


ALICE = Caller("alice", "test", ACCOUNT_SCOPES)


@pytest.mark.system
async def test_retries_image_comparison_after_database_error(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    image = await system.make_application()
    # A pull under way would compare again by itself.
    await eventually(lambda: has_its_images(system.control_plane))
    another = image.partition("@")[0] + "@sha256:" + "a" * 64
    await system.rows(f"UPDATE tag SET image = '{another}'")
    await system.rows("ALTER TABLE tag RENAME TO hidden")
    system.control_plane.fleet.look_at_images()
    await eventually(lambda: "cannot read its desired images" in caplog.text)
    await system.rows("ALTER TABLE hidden RENAME TO tag")
    await eventually(lambda: set(system.agent.pulled) == {image, another})


async def test_compares_images_regularly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.fleet.host.images.REVIEW_INTERVAL", 0.05)
    async with System(tmp_path) as system:
        image = await system.make_application()
        another = image.partition("@")[0] + "@sha256:" + "a" * 64
        await system.unnoticed(f"UPDATE tag SET image = '{another}'")
        await eventually(lambda: set(system.agent.pulled) == {image, another})


async def test_hosts_of_an_added_region_pull_the_enabled_tags(system: System) -> None:
    await system.make_application(tag=None, regions=["elsewhere"])
    image = await system.enable("v1", pulled_by=())
    (await system.edit(regions=["local", "elsewhere"])).expect(204)
    await eventually(lambda: system.has("a0", image))


async def test_hosts_pull_a_tag_whose_client_hung_up(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller disconnects while the transaction of its call waits for the database."""
    await system.make_application(tag=None)
    digest = system.registry.push("studio/game", "v1")
    sent = asyncio.Event()

    async def note(go: Go) -> Any:
        sent.set()
        return await go()

    intercept(monkeypatch, enable_tag, note)
    async with blocked(system.control_plane.store.run):
        call = asyncio.create_task(system.enable_tag())
        await sent.wait()
        call.cancel()
        await asyncio.wait({call})
    await eventually(lambda: system.has("a0", f"{system.registry.address}/studio/game@{digest}"))
