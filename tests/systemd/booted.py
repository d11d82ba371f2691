"""systemd as process 1 of its own namespaces, with Docker Engine, like on a host.

`python -m tests.systemd.booted` boots a system and opens a root shell in it; the system ends with
the shell. It reaches only the test, at `host_address`; the test reaches it at `address`. Its
processes end with the one that booted it, and its files are removed.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import click

from tests.docker.stack import eventually
from tests.support.harness import Process
from tests.support.private_engine import remove_cgroups
from tests.support.private_network import PrivateNetwork
from tests.support.real_engine import UnavailableError
from tests.systemd.root import made_root

_BOOT = Path(__file__).with_name("boot.sh")
_BOOT_TIMEOUT = 120.0  # Seconds; it takes 1 on an idle machine with two cores
_COMMAND_TIMEOUT = 60.0
_ENVIRONMENT = {
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}


class CommandFailedError(Exception):
    """A command inside failed; the text has its output."""


class Booted:
    """A system that runs within the context; `environment` is for its commands."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        if os.geteuid() != 0:
            raise UnavailableError("booting a system needs root")
        self.environment = {**_ENVIRONMENT, **(environment or {})}
        # Not in /tmp, which is memory on many machines: it holds images and containers.
        self.folder = Path(tempfile.mkdtemp(prefix="tiltyard-boot-", dir="/var/tmp"))
        self.network = PrivateNetwork()
        self._process = Process("boot.sh", self.folder / "console.log")
        self._init = 0

    @property
    def docker_socket(self) -> Path:
        """Path of the engine's socket, for the test."""
        return Path(f"/proc/{self._init}/root/run/docker.sock")

    def __enter__(self) -> Self:
        try:
            root = made_root()
            self.network.make()
            disk = self.folder / "disk"
            disk.mkdir()
            name = self.network.name
            self._process.launch(
                [str(_BOOT), "enter", name, name, str(root), str(disk)], self._is_systemd
            )
            eventually(self._is_up, "systemd has started all", patience=_BOOT_TIMEOUT)
        except BaseException:
            self._report()
            self._remove()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is not None:
                self._report()
        finally:
            self._remove()

    def inside(self, *command: str) -> list[str]:
        """Return a command that runs `command` inside as root."""
        settings = [f"{name}={value}" for name, value in self.environment.items()]
        enter = ["nsenter", f"--target={self._init}", "--all", "--wdns=/"]
        return [*enter, "env", "--ignore-environment", *settings, *command]

    def run(self, *command: str, given: bytes = b"", timeout: float = _COMMAND_TIMEOUT) -> str:
        """Run a command inside and return its output; raises CommandFailedError."""
        done = self.attempt(*command, given=given, timeout=timeout)
        if done.returncode != 0:
            output = f"{done.stdout}{done.stderr}".strip()
            raise CommandFailedError(f"{' '.join(command)}: {done.returncode}: {output}")
        return done.stdout

    def attempt(
        self, *command: str, given: bytes = b"", timeout: float = _COMMAND_TIMEOUT
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside without checking its exit code."""
        done = subprocess.run(
            self.inside(*command), input=given, check=False, capture_output=True, timeout=timeout
        )
        out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(command, done.returncode, out, err)

    def write(self, path: str, text: str) -> None:
        """Write a file inside at an absolute path; missing folders are created."""
        self.run("sh", "-c", 'mkdir -p "${0%/*}" && cat >"$0"', path, given=text.encode())

    def unpack(self, folder: str, tar: bytes) -> None:
        """Unpack an archive inside, into a folder that is created if missing."""
        self.run("mkdir", "-p", folder)
        self.run("tar", "--extract", "--no-same-owner", f"--directory={folder}", given=tar)

    def unit(self, name: str, *keys: str) -> dict[str, str]:
        """Return properties of a unit from `systemctl show`."""
        shown = self.run("systemctl", "show", name, *(f"--property={key}" for key in keys))
        return dict(line.split("=", 1) for line in shown.splitlines())

    def journal(self, *arguments: str) -> list[str]:
        """Sync the journal and return the lines that `journalctl` selects."""
        self.attempt("journalctl", "--sync")
        return self.run("journalctl", "--no-pager", "--quiet", *arguments).splitlines()

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

    def _is_up(self) -> bool:
        state = self.attempt("systemctl", "is-system-running").stdout.strip()
        if state == "degraded":
            failed = self.run("systemctl", "--failed", "--no-legend")
            raise RuntimeError(f"units failed at the start: {failed}")
        return state == "running"

    def _report(self) -> None:
        """Print the system's log, which pytest shows if the test fails."""
        with contextlib.suppress(CommandFailedError, subprocess.TimeoutExpired):
            lines = self.journal("--lines=1000", "--output=short-monotonic")
            for line in (line for line in lines if " level=info " not in line):
                click.echo(line, err=True)
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
        near, far = system.network.host_address, system.network.address
        click.echo(f"a system at {far}; this machine is {near} to it")
        return subprocess.run(
            system.inside(*(arguments or ["bash", "-i"])), check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(_shell(sys.argv[1:]))
