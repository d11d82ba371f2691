"""A docker-registry with a log-in by name and password, and what is pushed to it."""

import hashlib
import json
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from tests.support.harness import Registry

USER = {"username": "robot", "password": "s3cret-word"}
OTHER_PASSWORD = "another-s3cret"
# As `htpasswd -nbB` writes them; fixed, since few machines have that.
_LINES = {
    USER["password"]: "robot:$2y$05$tiltyardtiltyardtilty.ph3M6l7l7y4/xrgSyGzchYcgjIIgv5S\n",
    OTHER_PASSWORD: "robot:$2y$05$tiltyardtiltyardtilty.L51a/nkljlEkyrITqxUS3iA7wTI8fCS\n",
}
NAME = "registry.test"
OPENSSL = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    " -subj /CN=tiltyard"
)
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class SecuredRegistry(Registry):
    """The same with a log-in by name and password, and a certificate where there is one.

    `data` is the folder of another one, whose images it shows.
    """

    def __init__(
        self,
        tls: dict[str, str] | None = None,
        *,
        host: str = "127.0.0.1",
        data: Path | None = None,
    ) -> None:
        super().__init__(host)
        self.tls = tls
        self.data = data or self.folder / "data"

    def start(self) -> None:
        self.accept(USER["password"])
        login = {"realm": "a registry", "path": str(self.folder / "htpasswd")}
        settings: dict[str, Any] = {
            "version": "0.1",
            "log": {"level": "warn", "accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": str(self.data)}},
            "auth": {"htpasswd": login},
            "http": {"addr": self.address} | ({"tls": self.tls} if self.tls else {}),
        }
        config = self.folder / "config.yml"
        config.write_text(json.dumps(settings))
        self.process.launch(["docker-registry", "serve", str(config)], self._listens)

    def accept(self, password: str) -> None:
        """Let this password in, and no other: it looks at the file at every request."""
        (self.folder / "htpasswd").write_text(_LINES[password])

    def _listens(self) -> bool:
        host, _, port = self.address.partition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0


def make_certificate(folder: Path, subject: str = f"DNS:{NAME}") -> dict[str, str]:
    """Make an authority of our own, which is the server's certificate, too."""
    tls = {name: str(folder / f"{name}.pem") for name in ("certificate", "key")}
    files = ["-out", tls["certificate"], "-keyout", tls["key"]]
    command = f"{OPENSSL} -addext subjectAltName={subject}".split()
    subprocess.run([*command, *files], check=True, capture_output=True)
    return tls


def trust(certificate: dict[str, str]) -> ssl.SSLContext:
    """Trust it whatever the name: we push to the address."""
    context = ssl.create_default_context(cafile=certificate["certificate"])
    context.check_hostname = False
    return context


def give_loopback_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it called `NAME`, since plain HTTP goes to the address itself."""

    def look_up(host: str) -> list[tuple[socket.AddressFamily, int, str]]:
        assert host == NAME
        return [(socket.AF_INET, socket.IPPROTO_TCP, "127.0.0.1")]

    monkeypatch.setattr("controlplane.outbound.resolver.look_up", look_up)


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
