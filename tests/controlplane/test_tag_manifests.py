"""Enabling a tag: what its manifest must be, and that no host pulls anything else."""

from typing import Any

import pytest
from aiohttp import ClientTimeout

from controlplane.registries.client import RegistryClient, ResolvedTag
from tests.support.controlplane.fake_registry import IMAGE, LAYER, FakeRegistry, blob, image, index
from tests.support.controlplane.system import System, assert_error, eventually

LINUX = {"os": "linux", "architecture": "amd64"}
FOREIGN = image(layers=[blob(LAYER, urls=["http://169.254.169.254/latest/"])])

pytestmark = pytest.mark.system(max_image_bytes=1000, application={"tag": None})


def push_listed(registry: FakeRegistry, manifest: dict[str, Any]) -> dict[str, Any]:
    """Push an image without a tag; return what names it in a list."""
    digest = registry.push_manifest("studio/game", "", manifest)
    return {"mediaType": IMAGE, "digest": digest, "size": 9, "platform": LINUX}


async def pulls(system: System, digest: str) -> None:
    """Check that the tag is enabled, and that the host pulls this."""
    assert (await system.enable_tag()).status == 204
    await eventually(lambda: system.has(system.agent.name, image_of(system, digest)))


def image_of(system: System, digest: str) -> str:
    return f"{system.registry.address}/studio/game@{digest}"


async def assert_refused(system: System, status: int, why: str) -> None:
    """Check that the tag is not enabled, and why, and that the host received nothing."""
    assert why in assert_error(await system.enable_tag(), status).text
    assert await system.rows("SELECT * FROM tag") == []
    assert system.agent.pulled == []


async def test_manifest_is_read_with_one_request(system: System) -> None:
    """And another one for its config."""
    await pulls(system, system.registry.push("studio/game", "v1"))
    manifest, config = system.registry.asked
    assert manifest == "/v2/studio/game/manifests/v1"
    assert config.startswith("/v2/studio/game/blobs/sha256:")


async def test_images_for_linux_of_a_list_are_read_and_no_others(system: System) -> None:
    registry = system.registry
    first = push_listed(registry, image("first"))
    second = push_listed(registry, image("second"))
    attestation = blob(IMAGE, platform={"os": "unknown", "architecture": "unknown"})
    windows = blob(IMAGE, "windows", platform={"os": "windows", "architecture": "amd64"})
    listed = index(first, attestation, second, windows, first)
    await pulls(system, registry.push_manifest("studio/game", "v1", listed))
    names = ["v1", first["digest"], second["digest"]]
    asked = [path for path in registry.asked if "/blobs/" not in path]
    assert asked == [f"/v2/studio/game/manifests/{name}" for name in names]
    assert len(registry.asked) == len(asked) + 1  # the config of the first


async def test_size_of_an_image_is_that_of_its_manifest(system: System) -> None:
    manifest = image(layers=[blob(LAYER, size=90), blob(LAYER, size=3)])
    await pulls(system, system.registry.push_manifest("studio/game", "v1", manifest))
    assert await system.rows("SELECT size_bytes FROM tag") == [(100,)]


async def test_size_of_a_list_is_that_of_its_largest_image(system: System) -> None:
    small = push_listed(system.registry, image())
    large = push_listed(system.registry, image(layers=[blob(LAYER, size=93)]))
    listed = index(small, large, small)
    await pulls(system, system.registry.push_manifest("studio/game", "v1", listed))
    assert await system.rows("SELECT size_bytes FROM tag") == [(100,)]


async def test_image_that_is_too_large_is_422(system: System) -> None:
    system.registry.push_manifest("studio/game", "v1", image(layers=[blob(LAYER, size=994)]))
    await assert_refused(system, 422, "its image has 1001 bytes; at most 1000 are")


async def test_list_with_one_image_that_may_not_be_pulled_is_422(system: System) -> None:
    good = push_listed(system.registry, image())
    bad = push_listed(system.registry, FOREIGN)
    system.registry.push_manifest("studio/game", "v1", index(good, bad))
    await assert_refused(system, 422, "outside the registry")


async def test_enabled_tag_stays_although_its_new_image_may_not_be_pulled(system: System) -> None:
    old = await system.enable("v1")
    system.registry.push_manifest("studio/game", "v1", FOREIGN)
    assert_error(await system.enable_tag(), 422, "tag")
    assert (await system.start()).status == 201
    assert [request.spec.image for request in system.agent.started] == [old]
    assert set(system.agent.pulled) == {old}


@pytest.mark.parametrize(
    ("content", "kind", "why"),
    [
        (b"<html>Log in</html>", "text/html", "its manifest is not JSON"),
        (b" " * (4 * 1024 * 1024 + 1), IMAGE, "its answer is larger than 4194304 bytes"),
    ],
    ids=["a page", "too large"],
)
async def test_answer_that_is_no_manifest_is_503(
    system: System, content: bytes, kind: str, why: str
) -> None:
    system.registry.push_manifest("studio/game", "v1", content, kind)
    await assert_refused(system, 503, why)


async def test_manifest_with_the_digest_of_another_is_503(system: System) -> None:
    system.registry.push("studio/game", "v1")
    system.registry.header_digest = "sha256:" + "0" * 64
    await assert_refused(system, 503, "its manifest does not match its digest")


async def test_list_that_names_a_missing_image_is_503(system: System) -> None:
    named = push_listed(system.registry, image())
    system.registry.push_manifest("studio/game", "v1", index(named))
    key = ("studio/game", named["digest"])
    good = system.registry.manifests.pop(key)
    await assert_refused(system, 503, "it lacks an image that its list names")
    system.registry.manifests[key] = good
    assert (await system.enable_tag()).status == 204


async def test_list_that_names_an_image_of_other_content_is_503(system: System) -> None:
    registry = system.registry
    named = push_listed(registry, image())
    registry.push_manifest("studio/game", "v1", index(named))
    content, kind = registry.manifests["studio/game", named["digest"]]
    registry.manifests["studio/game", named["digest"]] = (content + b" ", kind)
    registry.header_digest = ""
    await assert_refused(system, 503, "it lacks an image that its list names")


async def test_what_a_list_names_has_the_same_time_limit(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.registries.http.TIMEOUT", ClientTimeout(total=None))
    monkeypatch.setattr("controlplane.registries.client.RESOLVE_TIMEOUT", 3.0)
    named = push_listed(system.registry, image())
    system.registry.push_manifest("studio/game", "v1", index(named))
    system.registry.hangs_on = named["digest"]
    assert_error(await system.enable_tag(), 504)
    assert system.registry.asked[-1].endswith(named["digest"])


Changes = list[dict[str, Any]]


@pytest.fixture
def changes(system: System, monkeypatch: pytest.MonkeyPatch) -> Changes:
    """Edits of the application, one after each answer of the registry."""
    edits: Changes = []
    resolve = RegistryClient.resolve

    async def late(client: RegistryClient, *of: Any, account: str) -> ResolvedTag | None:
        resolved = await resolve(client, *of, account=account)
        if edits:
            (await system.edit(**edits.pop(0))).expect(204)
        return resolved

    monkeypatch.setattr(RegistryClient, "resolve", late)
    return edits


async def test_a_tag_is_enabled_where_the_images_are_once_they_come_to_rest(
    system: System, changes: Changes
) -> None:
    for repository in ("studio/other", "studio/game"):
        system.registry.push(repository, "v1")
        changes.append({"repository": repository})
    await assert_refused(system, 503, "it was changed meanwhile")
    other = system.registry.push("studio/other", "v1")
    changes.append({"repository": "studio/other"})
    assert (await system.enable_tag()).status == 204
    rows = await system.rows("SELECT digest, image FROM tag")
    assert rows == [(other, f"{system.registry.address}/studio/other@{other}")]


async def test_a_tag_that_moves_changes_nothing_until_it_is_enabled_again(system: System) -> None:
    """Then the old image is removed."""
    first = system.registry.push("studio/game", "v1", "first")
    await pulls(system, first)
    second = system.registry.push("studio/game", "v1", "second")
    system.control_plane.fleet.look_at_images()
    await system.restart()
    await eventually(lambda: system.has(system.agent.name, image_of(system, first)))
    assert await system.rows("SELECT digest FROM tag") == [(first,)]
    assert [image.rpartition("@")[2] for image in set(system.agent.pulled)] == [first]
    assert (await system.start(id="after")).status == 201
    assert {session.image for session in system.agent.live} == {image_of(system, first)}
    await pulls(system, second)
    await eventually(lambda: image_of(system, first) not in system.agent.images)
    assert (await system.start(id="moved")).status == 201
    assert image_of(system, second) in {session.image for session in system.agent.live}
