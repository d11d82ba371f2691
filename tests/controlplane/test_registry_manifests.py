"""Manifests in docker-registry: lists and tags."""

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from controlplane.registries.client import RegistryClient
from controlplane.registries.endpoint import Endpoint
from controlplane.registries.manifests import digest_of
from controlplane.storage.tables.registries import Registry as RegistryRow
from tests.support.controlplane.fake_registry import IMAGE, INDEX, blob, index
from tests.support.fake_clock import FakeClock
from tests.support.harness import Registry
from tests.support.pushed_image import push_image

pytestmark = pytest.mark.registry

REPOSITORY = "studio/listed"
LINUX = {"os": "linux", "architecture": "amd64"}


@pytest.fixture
async def client() -> AsyncIterator[RegistryClient]:
    client = RegistryClient(lambda row: Endpoint(row.address), FakeClock(), max_image_bytes=2**20)
    yield client
    await client.close()


@pytest.fixture
def row(registry: Registry) -> RegistryRow:
    return RegistryRow("real", registry.address, ())


async def push(row: RegistryRow, tag: str, program: bytes = b"none") -> str:
    """Push an image; return its digest."""
    pushed = await asyncio.to_thread(push_image, row.address, REPOSITORY, tag, program=program)
    return pushed.digest


async def test_resolves_a_list_to_its_own_digest(client: RegistryClient, row: RegistryRow) -> None:
    digests = [await push(row, f"listed-{n}", b"program %d" % n) for n in range(2)]
    listed = [blob(IMAGE, platform=LINUX) | {"digest": digest} for digest in digests]
    content, headers = json.dumps(index(*listed)).encode(), {"Content-Type": INDEX}
    url = f"http://{row.address}/v2/{REPOSITORY}/manifests/v1"
    async with aiohttp.request("PUT", url, data=content, headers=headers) as pushed:
        assert pushed.status == 201, await pushed.text()
    assert await client.resolve(row, REPOSITORY, "v1") == digest_of(content)


async def test_reads_tags_page_by_page(
    client: RegistryClient, row: RegistryRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.registries.client.PAGE_SIZE", 2)
    for tag in ("v1", "v9", "v10"):
        digest = await push(row, tag)
        assert await client.resolve(row, REPOSITORY, tag) == digest
    found = [tag for tag in await client.tags(row, REPOSITORY) if tag[1:].isdecimal()]
    assert found == ["v10", "v9", "v1"]
    assert await client.resolve(row, REPOSITORY, "v2") is None
    assert await client.resolve(row, "studio/none", "v1") is None
    assert list(await client.tags(row, "studio/none")) == []
