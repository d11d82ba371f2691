"""A docker-registry with login by name and password, and its images."""

import asyncio
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import Registry
from tests.support.pushed_image import push_image

USER = {"username": "robot", "password": "s3cret-word"}
OTHER_PASSWORD = "another-s3cret"
# Output of `htpasswd -nbB`, which few machines have.
_LINES = {
    USER["password"]: "robot:$2y$05$tiltyardtiltyardtilty.ph3M6l7l7y4/xrgSyGzchYcgjIIgv5S\n",
    OTHER_PASSWORD: "robot:$2y$05$tiltyardtiltyardtilty.L51a/nkljlEkyrITqxUS3iA7wTI8fCS\n",
}
NAME = "registry.test"
OPENSSL = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    " -subj /CN=tiltyard"
)


class SecuredRegistry(Registry):
    """A registry with login by name and password, and TLS if a certificate is given.

    `data` is the folder of another registry to share images with.
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
        self.settings = {
            "storage": {"filesystem": {"rootdirectory": str(self.data)}},
            "auth": {"htpasswd": login},
            "http": {"addr": self.address} | ({"tls": self.tls} if self.tls else {}),
        }
        self.launch(self._listens)

    async def push(self, repository: str, *tags: str) -> str:
        """Push one image under these tags; return its digest."""
        log_in = USER["username"], USER["password"]
        context = None
        if self.tls:
            context = ssl.create_default_context(cafile=self.tls["certificate"])
            context.check_hostname = False  # pushes go to the address
        more: Any = {"program": b"none", "log_in": log_in, "context": context}
        for tag in tags:
            pushed = await asyncio.to_thread(push_image, self.address, repository, tag, **more)
        return pushed.digest

    def accept(self, password: str) -> None:
        """Accept only this password; the registry reads the file at every request."""
        (self.folder / "htpasswd").write_text(_LINES[password])

    def _listens(self) -> bool:
        host, _, port = self.address.partition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0


def make_certificate(folder: Path, subject: str = f"DNS:{NAME}") -> dict[str, str]:
    """Make an authority that is also the server's certificate."""
    tls = {name: str(folder / f"{name}.pem") for name in ("certificate", "key")}
    files = ["-out", tls["certificate"], "-keyout", tls["key"]]
    command = f"{OPENSSL} -addext subjectAltName={subject}".split()
    subprocess.run([*command, *files], check=True, capture_output=True)
    return tls


def give_loopback_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolve `NAME` to loopback, since plain HTTP is allowed for the address itself."""

    def look_up(host: str) -> list[tuple[socket.AddressFamily, int, str]]:
        assert host == NAME
        return [(socket.AF_INET, socket.IPPROTO_TCP, "127.0.0.1")]

    monkeypatch.setattr("controlplane.registries.resolver.look_up", look_up)
