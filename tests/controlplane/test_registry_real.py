"""The registry client against docker-registry: open, with a log-in, and behind TLS."""

from __future__ import annotations

import hashlib
import json
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from controlplane.errors import RegistryUnavailableError
from controlplane.registries.client import RegistryClient
from controlplane.registries.endpoint import Endpoint
from controlplane.storage.fleet_store import Registry as RegistryRow
from tests.harness import Registry

pytestmark = pytest.mark.registry

# As `htpasswd -nbB` writes it; fixed, since few machines have that.
HTPASSWD = "robot:$2y$05$tiltyardtiltyardtilty.ph3M6l7l7y4/xrgSyGzchYcgjIIgv5S\n"
USER = {"username": "robot", "password": "s3cret-word"}
NAME = "registry.test"
OPENSSL = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    f" -subj /CN=tiltyard -addext subjectAltName=DNS:{NAME}"
)
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class SecuredRegistry(Registry):
    """The same with a log-in by name and password, and a certificate where there is one."""

    def __init__(self, tls: dict[str, str] | None = None) -> None:
        super().__init__()
        self.tls = tls

    def start(self) -> None:
        (self.folder / "htpasswd").write_text(HTPASSWD)
        login = {"realm": "a registry", "path": str(self.folder / "htpasswd")}
        settings: dict[str, Any] = {
            "version": "0.1",
            "log": {"level": "warn", "accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": str(self.folder / "data")}},
            "auth": {"htpasswd": login},
            "http": {"addr": self.address} | ({"tls": self.tls} if self.tls else {}),
        }
        config = self.folder / "config.yml"
        config.write_text(json.dumps(settings))
        self.process.launch(["docker-registry", "serve", str(config)], self._listens)

    def _listens(self) -> bool:
        host, _, port = self.address.partition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An authority of our own, which is the server's certificate, too."""
    folder = tmp_path_factory.mktemp("tls")
    tls = {name: str(folder / f"{name}.pem") for name in ("certificate", "key")}
    files = ["-out", tls["certificate"], "-keyout", tls["key"]]
    subprocess.run([*OPENSSL.split(), *files], check=True, capture_output=True)
    return tls


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
    """Give the loopback address a name, since plain HTTP goes to the address itself."""

    def look_up(host: str) -> list[tuple[socket.AddressFamily, int, str]]:
        assert host == NAME
        return [(socket.AF_INET, socket.IPPROTO_TCP, "127.0.0.1")]

    monkeypatch.setattr("controlplane.registries.resolver.look_up", look_up)


async def push(
    url: str,
    repository: str,
    *tags: str,
    headers: dict[str, str] | None = None,
    context: ssl.SSLContext | bool = True,
) -> str:
    """Push an image of one empty layer under these tags; return its digest."""
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(url, headers=headers, connector=connector) as session:
        blob = b"{}"
        described = {"digest": digest_of(blob), "size": len(blob)}
        async with session.post(f"/v2/{repository}/blobs/uploads/") as begun:
            assert begun.status == 202, await begun.text()
            upload = begun.url.join(URL(begun.headers["Location"]))
        upload = upload.update_query(digest=digest_of(blob))
        async with session.put(upload, data=blob) as uploaded:
            assert uploaded.status == 201, await uploaded.text()
        config = {"mediaType": "application/vnd.oci.image.config.v1+json", **described}
        layer = {"mediaType": "application/vnd.oci.image.layer.v1.tar", **described}
        fields = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]}
        manifest = json.dumps(fields).encode()
        for tag in tags:
            path, kind = f"/v2/{repository}/manifests/{tag}", {"Content-Type": MANIFEST}
            async with session.put(path, data=manifest, headers=kind) as pushed:
                assert pushed.status == 201, await pushed.text()
    return digest_of(manifest)


def log_in() -> dict[str, str]:
    pair = aiohttp.encode_basic_auth(USER["username"], USER["password"])
    return {"Authorization": pair}


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@asynccontextmanager
async def client_of(endpoint: Endpoint) -> AsyncIterator[tuple[RegistryClient, RegistryRow]]:
    client = RegistryClient(endpoint_of=lambda _: endpoint)
    await client.start()
    try:
        yield client, RegistryRow("real", endpoint.address, ())
    finally:
        await client.stop()


async def finds(endpoint: Endpoint, digest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that three tags of one image are found, in pages, and what is not there is not."""
    monkeypatch.setattr("controlplane.registries.client.PAGE_SIZE", 2)
    async with client_of(endpoint) as (client, row):
        for tag in ("v1", "v9", "v10"):
            assert await client.resolve(row, "studio/real", tag) == digest
        assert list(await client.tags(row, "studio/real")) == ["v10", "v9", "v1"]
        assert await client.resolve(row, "studio/real", "v2") is None
        assert await client.resolve(row, "studio/none", "v1") is None
        assert list(await client.tags(row, "studio/none")) == []


async def test_an_open_registry_is_read(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = await push(f"http://{registry.address}", "studio/real", "v1", "v9", "v10")
    await finds(Endpoint(registry.address), digest, monkeypatch)


async def test_a_registry_with_a_log_in_is_read(
    with_log_in: SecuredRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"http://{with_log_in.address}"
    digest = await push(url, "studio/real", "v1", "v9", "v10", headers=log_in())
    endpoint = Endpoint(with_log_in.address, USER["username"], USER["password"])
    await finds(endpoint, digest, monkeypatch)


@pytest.mark.usefixtures("name_of_loopback")
async def test_a_registry_with_a_certificate_of_our_own_is_read(
    behind_tls: SecuredRegistry, certificate: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.create_default_context(cafile=certificate["certificate"])
    context.check_hostname = False  # we push to the address
    tags, url = ("v1", "v9", "v10"), f"https://{behind_tls.address}"
    digest = await push(url, "studio/real", *tags, headers=log_in(), context=context)
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
    assert "cannot ask registry real" in caplog.text
    assert USER["password"] not in caplog.text
