"""systemd as process 1 of its own namespaces, with Docker Engine, like on a host.

`python -m tests.systemd.booted` boots a system and opens a root shell in it; the system ends with
the shell. It reaches only the test, at `host_address`; the test reaches it at `address`. Its
processes end with the one that booted it, and its files are removed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from tests.docker.stack import eventually
from tests.support.harness import Process
from tests.support.private_engine import remove_cgroups
from tests.support.private_network import PrivateNetwork
from tests.support.real_engine import UnavailableError
from tests.systemd.root import made_root
from tests.systemd.system import System

_BOOT = Path(__file__).with_name("boot.sh")
_BOOT_TIMEOUT = 120.0  # Seconds; it takes 1 on an idle machine with two cores


class Booted(System):
    """A system that runs within the context; `environment` is for its commands."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        if os.geteuid() != 0:
            raise UnavailableError("booting a system needs root")
        super().__init__(environment)
        # Not in /tmp, which is memory on many machines: it holds images and containers.
        self.folder = Path(tempfile.mkdtemp(prefix="tiltyard-boot-", dir="/var/tmp"))
        self.network: PrivateNetwork = PrivateNetwork()
        self._process = Process("boot.sh", self.folder / "console.log")
        self._init = 0

    def _start(self) -> None:
        root = made_root()
        self.network.make()
        disk = self.folder / "disk"
        disk.mkdir()
        name = self.network.name
        self._process.launch(
            [str(_BOOT), "enter", name, name, str(root), str(disk)], self._is_systemd
        )
        eventually(self.is_up, "systemd has started all", patience=_BOOT_TIMEOUT)

    def inside(self, *command: str) -> list[str]:
        """Return a command that runs `command` inside as root."""
        return [*self._enter, *self.in_environment(*command)]

    def _run(
        self, command: Sequence[str], given: bytes, timeout: float
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*self._enter, *command],
            input=given,
            check=False,
            capture_output=True,
            timeout=timeout,
        )

    @property
    def _enter(self) -> list[str]:
        return ["nsenter", f"--target={self._init}", "--all", "--wdns=/"]

    def _is_systemd(self) -> bool:
        """Return whether the first process inside has become systemd."""
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if not children:
            return False
        self._init = int(children[0])
        try:
            return Path(f"/proc/{self._init}/comm").read_text().strip() == "systemd"
        except OSError:  # it ended; its parent is about to report that
            return False

    def _report(self) -> None:
        self.report()
        if self._process.log.exists():
            click.echo(self._process.tail(), err=True)

    def _remove(self) -> None:
        try:
            self._process.kill()  # kills systemd, and thereby everything else
            if self.network.name:
                remove_cgroups(self.network.name)  # waits until they are empty
        finally:
            self.network.remove()
            shutil.rmtree(self.folder)


def _shell(arguments: Sequence[str]) -> int:
    with Booted() as system:
        near = system.network.host_address
        far = system.network.address
        click.echo(f"a system at {far}; this machine is {near} to it")
        return subprocess.run(
            system.inside(*(arguments or ["bash", "-i"])), check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(_shell(sys.argv[1:]))
