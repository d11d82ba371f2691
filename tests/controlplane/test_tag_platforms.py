"""Tags whose image no host can run, or whose command ignores arguments."""

from typing import Any

import pytest

from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.fake_registry import IMAGE, blob, config, index
from tests.support.controlplane.system import System, assert_error, eventually, eventually_equals

pytestmark = pytest.mark.system(agents=2, application={"tag": None})

TAG = "/tag/local/game/v1"
SHELL = {"Entrypoint": ["/bin/sh", "-c", "/game --port 7777"]}
NO_REASON = {"exists": True}


def push(system: System, content: Any) -> str:
    """Push an image with this config."""
    manifest = system.registry.with_config(content)
    return system.registry.push_manifest("studio/game", "v1", manifest)


async def enable(system: System, content: Any) -> None:
    """Push an image with this config, enable it, and wait until all hosts have pulled it."""
    digest = push(system, content)
    (await system.enable_tag()).expect(204)
    image = f"{system.registry.address}/studio/game@{digest}"
    await eventually(lambda: all(system.has(agent.name, image) for agent in system.agents))


async def has_platform(system: System, number: int, platform: str) -> None:
    """Let a host run images of another platform, and wait until it has said so."""
    agent = system.agents[number]
    agent.change_host(platform=platform)
    await system.has_reported(agent.name, platform=platform)


async def test_image_for_another_architecture_is_422(system: System) -> None:
    push(system, config(architecture="arm64"))
    answer = assert_error(await system.enable_tag(), 422)
    assert "its image is for linux/arm64, and the hosts are linux/amd64" in answer.text
    assert await system.rows("SELECT * FROM tag") == []


async def test_list_without_an_image_for_the_hosts_is_422(system: System) -> None:
    registry = system.registry
    only = registry.push_manifest("studio/game", "", registry.with_config(config()))
    platform = {"os": "linux", "architecture": "arm64", "variant": "v8"}
    entry = {"mediaType": IMAGE, "digest": only, "size": 9, "platform": platform}
    attestation = blob(IMAGE, "att", platform={"os": "unknown", "architecture": "unknown"})
    registry.push_manifest("studio/game", "v1", index(entry, attestation))
    assert "linux/arm64/v8" in assert_error(await system.enable_tag(), 422).text


async def test_image_for_another_system_is_422(system: System) -> None:
    push(system, config("windows"))
    assert "has no image for Linux" in assert_error(await system.enable_tag(), 422).text


@pytest.mark.parametrize(
    "content",
    [
        config(architecture="386"),
        config(architecture="x86_64"),
        {},
        {"os": "linux"},
        {"os": "linux", "architecture": "x" * 40},
        {"os": "linux", "architecture": 7},
        {"OS": "windows"},
        "no JSON",
        "[]",
    ],
    ids=str,
)
async def test_image_that_hosts_may_run_is_enabled(system: System, content: Any) -> None:
    await enable(system, content)
    assert (await system.read(TAG))["exists"]


@pytest.mark.parametrize("status", [307, 401, 404, 500])
async def test_config_that_cannot_be_read_refuses_nothing(system: System, status: int) -> None:
    """A registry may send blobs from elsewhere: a redirect is not followed."""
    push(system, config(architecture="arm64"))
    system.registry.blob_status = status
    assert (await system.enable_tag()).status == 204
    assert await system.rows("SELECT platforms, command FROM tag") == [("", "")]


async def test_config_with_another_digest_is_not_believed(system: System) -> None:
    push(system, config(architecture="arm64"))
    for digest in system.registry.blobs:
        system.registry.blobs[digest] = b"{}"
    assert (await system.enable_tag()).status == 204
    assert await system.rows("SELECT platforms, command FROM tag") == [("", "")]


async def test_host_that_has_not_said_its_platform_may_run_anything(system: System) -> None:
    for number in range(len(system.agents)):
        await has_platform(system, number, "")
    push(system, config(architecture="arm64"))
    assert (await system.enable_tag()).status == 204


async def test_image_is_pulled_only_where_it_runs(system: System) -> None:
    """In a region of mixed hosts, so that no start is placed on the others."""
    await has_platform(system, 1, "linux/arm64")
    digest = push(system, config(architecture="arm64"))
    assert (await system.enable_tag()).status == 204
    image = f"{system.registry.address}/studio/game@{digest}"
    await eventually(lambda: system.has(system.agents[1].name, image))
    await eventually_equals(lambda: system.read(TAG), NO_REASON)
    assert system.agents[0].pulled == []
    await has_platform(system, 0, "linux/arm64")
    await eventually(lambda: system.has(system.agents[0].name, image))


async def test_region_whose_hosts_cannot_run_a_tag_says_why(system: System) -> None:
    await has_platform(system, 0, "")  # it may
    system.agents[1].before_pull = system.agents[1].hang
    push(system, config(architecture="arm64"))
    system.agents[0].before_pull = system.agents[0].hang
    (await system.enable_tag()).expect(204)
    await eventually_equals(lambda: system.read(TAG), {"exists": False, "pull": "pulling"})
    await has_platform(system, 0, "linux/amd64")
    reason = "its image is for linux/arm64, and the hosts are linux/amd64"
    await eventually_equals(lambda: system.read(TAG), {"exists": False, "reason": reason})


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        ("IMAGE_NOT_FOUND", "the registry does not have its image"),
        ("REGISTRY_UNAVAILABLE", "the registry cannot be reached from the hosts"),
        ("REGISTRY_TIMEOUT", "does not answer the hosts in time"),
        ("ENGINE_ERROR", "the operator sees the cause"),
    ],
)
async def test_failed_pull_has_a_reason_without_anything_of_the_host(
    system: System, refusal: str, words: str
) -> None:
    for agent in system.agents:
        agent.before_pull = refusing(refusal, "lookup on 10.0.0.2:53 by /var/lib/docker")
    push(system, config())
    (await system.enable_tag()).expect(204)

    async def has_reason() -> bool:
        return words in (await system.read(TAG)).get("reason", "")

    await eventually(has_reason)
    shown = await system.read(TAG)
    assert "10.0.0.2" not in shown["reason"]
    assert "docker" not in shown["reason"]
    for agent in system.agents:
        agent.before_pull = None
    await eventually_equals(lambda: system.read(TAG), NO_REASON)


async def test_region_without_hosts_is_named(system: System) -> None:
    await system.call("PUT", "/operator/region/empty")
    edit = {"regions": ["empty"]}
    await system.call("PUT", "/application/game", json=edit)
    push(system, config())
    assert (await system.enable_tag()).status == 204
    shown = await system.read("/tag/empty/game/v1")
    reason = "the region empty has no host in the node pool default"
    assert shown == {"exists": False, "reason": reason}


async def test_shell_form_is_a_warning_of_the_tag(system: System) -> None:
    await enable(system, config(execution=SHELL))
    [warning] = (await system.read(TAG))["warnings"]
    assert warning.startswith("its entry point is in shell form, which ignores `args`")
    [listed] = (await system.read("/application"))["applications"]
    assert listed["tags"] == [{"tag": "v1", "warnings": [warning]}]
    await enable(system, config())
    await eventually_equals(lambda: system.read(TAG), NO_REASON)
    [listed] = (await system.read("/application"))["applications"]
    assert "tags" not in listed


async def test_image_without_a_command_says_that_starts_need_arguments(system: System) -> None:
    await enable(system, config(execution={}))
    shown = await system.read(TAG)
    assert shown["reason"] == "it names no command: only starts with `args` run"
    assert shown["warnings"] == [shown["reason"]]
