"""A docker-registry with a log-in by name and password, and what is pushed to it."""

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
            context.check_hostname = False  # it is pushed to the address
        more: Any = {"program": b"none", "log_in": log_in, "context": context}
        for tag in tags:
            pushed = await asyncio.to_thread(push_image, self.address, repository, tag, **more)
        return pushed.digest

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


def give_loopback_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it called `NAME`, since plain HTTP goes to the address itself."""

    def look_up(host: str) -> list[tuple[socket.AddressFamily, int, str]]:
        assert host == NAME
        return [(socket.AF_INET, socket.IPPROTO_TCP, "127.0.0.1")]

    monkeypatch.setattr("controlplane.outbound.resolver.look_up", look_up)
