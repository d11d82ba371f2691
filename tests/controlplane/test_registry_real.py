"""The registry client against docker-registry: open, with a log-in, and behind TLS."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from controlplane.domain.errors import RegistryUnavailableError
from controlplane.registries.client import RegistryClient
from controlplane.registries.endpoint import Endpoint
from controlplane.storage.tables.registries import Registry as RegistryRow
from tests.support.controlplane.secured_registry import (
    NAME,
    USER,
    SecuredRegistry,
    give_loopback_a_name,
    make_certificate,
)
from tests.support.harness import Registry
from tests.support.pushed_image import push_image

pytestmark = pytest.mark.registry

TAGS = ("v1", "v9", "v10")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def with_log_in() -> Iterator[SecuredRegistry]:
    with SecuredRegistry() as running:
        yield running


@pytest.fixture(scope="module")
def behind_tls(certificate: dict[str, str]) -> Iterator[SecuredRegistry]:
    with SecuredRegistry(certificate) as running:
        yield running


@pytest.fixture
def name_of_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    give_loopback_a_name(monkeypatch)


@asynccontextmanager
async def client_of(endpoint: Endpoint) -> AsyncIterator[tuple[RegistryClient, RegistryRow]]:
    client = RegistryClient(endpoint_of=lambda _: endpoint, max_image_bytes=10**9)
    await client.start()
    try:
        yield client, RegistryRow("real", endpoint.address, ())
    finally:
        await client.stop()


async def finds(endpoint: Endpoint, digest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that three tags of one image are found, in pages, and what is not there is not."""
    monkeypatch.setattr("controlplane.registries.client.PAGE_SIZE", 2)
    async with client_of(endpoint) as (client, row):
        for tag in TAGS:
            assert await client.resolve(row, "studio/real", tag) == digest
        assert list(await client.tags(row, "studio/real")) == ["v10", "v9", "v1"]
        assert await client.resolve(row, "studio/real", "v2") is None
        assert await client.resolve(row, "studio/none", "v1") is None
        assert list(await client.tags(row, "studio/none")) == []


async def test_an_open_registry_is_read(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tag in TAGS:
        pushed = await asyncio.to_thread(push_image, registry.address, "studio/real", tag)
    await finds(Endpoint(registry.address), pushed.digest, monkeypatch)


async def test_a_registry_with_a_log_in_is_read(
    with_log_in: SecuredRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = await with_log_in.push("studio/real", *TAGS)
    endpoint = Endpoint(with_log_in.address, USER["username"], USER["password"])
    await finds(endpoint, digest, monkeypatch)


@pytest.mark.usefixtures("name_of_loopback")
async def test_a_registry_with_a_certificate_of_our_own_is_read(
    behind_tls: SecuredRegistry, certificate: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = await behind_tls.push("studio/real", *TAGS)
    await finds(trusting(behind_tls, certificate), digest, monkeypatch)


def trusting(running: Registry, certificate: dict[str, str], **changes: Any) -> Endpoint:
    ca = Path(certificate["certificate"]).read_text()
    port = running.address.rpartition(":")[2]
    fields: dict[str, Any] = {"private": True, "ca": ca, **USER, **changes}
    return Endpoint(f"{NAME}:{port}", **fields)


@pytest.mark.usefixtures("name_of_loopback")
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"password": "wrong"}, "it refused the log-in"),
        ({"username": ""}, "it wants a log-in, and none is configured"),
        ({"ca": ""}, "its TLS cannot be trusted"),
        ({"private": False}, "it cannot be reached"),
    ],
)
async def test_what_is_wrong_with_a_log_in_or_a_certificate_is_told(
    behind_tls: SecuredRegistry,
    certificate: dict[str, str],
    caplog: pytest.LogCaptureFixture,
    changes: dict[str, Any],
    told: str,
) -> None:
    endpoint = trusting(behind_tls, certificate, **changes)
    asked: list[Callable[[RegistryClient, RegistryRow], Any]] = [
        lambda client, row: client.resolve(row, "studio/real", "v1"),
        lambda client, row: client.tags(row, "studio/real"),
    ]
    async with client_of(endpoint) as (client, row):
        for ask in asked:
            with pytest.raises(RegistryUnavailableError) as raised:
                await ask(client, row)
            assert raised.value.why == told
    assert "cannot ask a registry registry=real" in caplog.text
    assert USER["password"] not in caplog.text
