"""Manifests in docker-registry: lists and tags."""

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from yarl import URL

from controlplane.registries.client import RegistryClient
from controlplane.registries.endpoint import Endpoint
from controlplane.registries.manifests import digest_of
from controlplane.storage.tables.registries import Registry as RegistryRow
from tests.support.controlplane.fake_registry import CONFIG, IMAGE, INDEX, LAYER
from tests.support.fake_clock import FakeClock
from tests.support.harness import Registry

pytestmark = pytest.mark.registry

REPOSITORY = "studio/listed"
LINUX = {"os": "linux", "architecture": "amd64"}


@pytest.fixture
async def client() -> AsyncIterator[RegistryClient]:
    client = RegistryClient(lambda row: Endpoint(row.address), FakeClock(), max_image_bytes=1000)
    yield client
    await client.close()


@pytest.fixture
def row(registry: Registry) -> RegistryRow:
    return RegistryRow("real", registry.address, ())


class Pusher:
    """Pushes blobs, then manifests that refer to them."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def blob(self, kind: str, content: bytes) -> dict[str, Any]:
        async with self._session.post(f"/v2/{REPOSITORY}/blobs/uploads/") as begun:
            upload = begun.url.join(URL(begun.headers["Location"]))
        async with self._session.put(
            upload.update_query(digest=digest_of(content)), data=content
        ) as uploaded:
            assert uploaded.status == 201, await uploaded.text()
        return {"mediaType": kind, "digest": digest_of(content), "size": len(content)}

    async def manifest(self, reference: str, manifest: dict[str, Any]) -> dict[str, Any]:
        """Push by tag or digest; return the descriptor for a list."""
        content, kind = json.dumps(manifest).encode(), str(manifest["mediaType"])
        path = f"/v2/{REPOSITORY}/manifests/{reference or digest_of(content)}"
        headers = {"Content-Type": kind}
        async with self._session.put(path, data=content, headers=headers) as pushed:
            assert pushed.status == 201, await pushed.text()
        return {"mediaType": kind, "digest": digest_of(content), "size": len(content)}

    async def image(self, tag: str = "", content: bytes = b"{}") -> dict[str, Any]:
        config, layer = await self.blob(CONFIG, content), await self.blob(LAYER, b"a layer")
        image = {"schemaVersion": 2, "mediaType": IMAGE, "config": config, "layers": [layer]}
        return await self.manifest(tag, image)


@pytest.fixture
async def push(registry: Registry) -> AsyncIterator[Pusher]:
    async with aiohttp.ClientSession(f"http://{registry.address}") as session:
        yield Pusher(session)


async def test_resolves_an_image_list_to_its_own_digest(
    client: RegistryClient, row: RegistryRow, push: Pusher
) -> None:
    images = [await push.image(content=content) for content in (b"{}", b'{"a":1}')]
    listed = [image | {"platform": LINUX} for image in images]
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": listed}
    named = await push.manifest("v1", index)
    assert await client.resolve(row, REPOSITORY, "v1") == named["digest"]


async def test_reads_tags_page_by_page(
    client: RegistryClient, row: RegistryRow, push: Pusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.registries.client.PAGE_SIZE", 2)
    for tag in ("v1", "v9", "v10"):
        named = await push.image(tag)
        assert await client.resolve(row, REPOSITORY, tag) == named["digest"]
    found = [tag for tag in await client.tags(row, REPOSITORY) if tag[1:].isdecimal()]
    assert found == ["v10", "v9", "v1"]
    assert await client.resolve(row, REPOSITORY, "v2") is None
    assert await client.resolve(row, "studio/none", "v1") is None
    assert list(await client.tags(row, "studio/none")) == []
