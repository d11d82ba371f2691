"""docker-registry: with a login, end to end with our API, and its lists and tags.

With a login it uses TLS with its own CA, and its name resolves to a private address.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from controlplane.domain.applications.registries import Registry as RegistryRow
from controlplane.registries.client import RegistryClient
from controlplane.registries.endpoint import Endpoint
from controlplane.registries.manifests import digest_of
from tests.support.controlplane.fake_registry import IMAGE, INDEX, blob, index
from tests.support.controlplane.secured_registry import (
    NAME,
    OTHER_PASSWORD,
    USER,
    SecuredRegistry,
    give_loopback_a_name,
    make_certificate,
)
from tests.support.controlplane.system import Answer, System, assert_error
from tests.support.fake_clock import FakeClock
from tests.support.harness import Registry
from tests.support.pushed_image import push_image

pytestmark = [pytest.mark.registry, pytest.mark.usefixtures("patient_registry_calls")]
SECRETS = (USER["password"], OTHER_PASSWORD)


class Configured(System):
    """Has one configured registry with the tag `v1` of its application."""

    def __init__(self, folder: Path, registry: SecuredRegistry, tls: dict[str, str]) -> None:
        super().__init__(folder)
        self.real = registry
        self.tls = tls
        self.digest = ""

    @property
    def login(self) -> dict[str, Any]:
        address = f"{NAME}:{self.real.address.rpartition(':')[2]}"
        ca = Path(self.tls["certificate"]).read_text()
        return {"address": address, **USER, "private": True, "ca": ca}

    async def push(self) -> None:
        self.digest = await self.real.push("studio/own", "v1")

    async def set(self, **body: Any) -> Answer:
        return await self.call("PUT", "/operator/registry/own", json=body)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def running(tls: dict[str, str]) -> Iterator[SecuredRegistry]:
    with SecuredRegistry(tls) as registry:
        yield registry


@pytest.fixture
async def system(
    tmp_path: Path,
    running: SecuredRegistry,
    tls: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> AsyncIterator[Configured]:
    """Check at the end that neither log nor state files contain a password."""
    give_loopback_a_name(monkeypatch)
    caplog.set_level(logging.DEBUG)
    running.accept(USER["password"])
    async with AsyncExitStack() as stack:
        system = Configured(tmp_path, running, tls)
        await system.push()
        await stack.enter_async_context(system)
        yield system
    for secret in SECRETS:
        assert secret not in caplog.text
        for path in (tmp_path / "state").rglob("*"):
            assert not path.is_file() or secret.encode() not in path.read_bytes(), path


async def with_application(system: Configured) -> None:
    assert (await system.set(**{**system.login, "password": "not this one"})).status == 204
    await system.make_application(tag=None, registry="own", repository="studio/own")


async def test_enables_a_tag_with_the_configured_login(system: Configured) -> None:
    await with_application(system)
    assert_error(await system.enable_tag(), 503)
    assert (await system.set(**system.login)).status == 204
    assert (await system.enable_tag()).status == 204
    (row,) = await system.rows("SELECT image FROM tag")
    assert row == (f"{system.login['address']}/studio/own@{system.digest}",)


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"password": OTHER_PASSWORD}, "it denied access"),
        ({"username": None, "password": None}, "it requires credentials, and none are configured"),
        ({"ca": None}, "its TLS cannot be trusted"),
        ({"private": False}, "it cannot be reached"),
    ],
)
async def test_failed_login_is_reported_without_its_password(
    system: Configured, change: dict[str, Any], reported: str
) -> None:
    await with_application(system)
    assert (await system.set(**{**system.login, **change})).status == 204
    answer = await system.enable_tag()
    assert_error(answer, 503, whole=f"cannot ask registry 'own': {reported}")
    assert not any(secret in answer.text for secret in SECRETS)


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


async def digest(client: RegistryClient, row: RegistryRow, tag: str) -> str:
    resolved = await client.resolve(row, REPOSITORY, tag, account="acme")
    assert resolved is not None
    return resolved.digest


async def test_resolves_a_list_to_its_own_digest(client: RegistryClient, row: RegistryRow) -> None:
    digests = [await push(row, f"listed-{n}", b"program %d" % n) for n in range(2)]
    listed = [blob(IMAGE, platform=LINUX) | {"digest": digest} for digest in digests]
    content = json.dumps(index(*listed)).encode()
    headers = {"Content-Type": INDEX}
    url = f"http://{row.address}/v2/{REPOSITORY}/manifests/v1"
    async with aiohttp.request("PUT", url, data=content, headers=headers) as pushed:
        assert pushed.status == 201, await pushed.text()
    assert await digest(client, row, "v1") == digest_of(content)


async def test_reads_tags_page_by_page(
    client: RegistryClient, row: RegistryRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.registries.client.PAGE_SIZE", 2)
    for tag in ("v1", "v9", "v10"):
        assert await push(row, tag) == await digest(client, row, tag)
    found = [tag for tag in await client.tags(row, REPOSITORY, "acme") if tag[1:].isdecimal()]
    assert found == ["v10", "v9", "v1"]
    assert await client.resolve(row, REPOSITORY, "v2", account="acme") is None
    assert await client.resolve(row, "studio/none", "v1", account="acme") is None
    assert list(await client.tags(row, "studio/none", "acme")) == []
