"""A system with systemd as process 1, and what a test does in it as root."""

import contextlib
import subprocess
from collections.abc import Mapping, Sequence
from typing import Self

import click

from tests.support.private_network import Network

_COMMAND_TIMEOUT = 60.0
_ENVIRONMENT = {
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}


class CommandFailedError(Exception):
    """A command inside failed; the text has its output."""


class System:
    """A running system; `environment` is for its commands."""

    network: Network
    slowness = 1.0  # How many times slower than this machine it may be

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self.environment = {**_ENVIRONMENT, **(environment or {})}

    def __enter__(self) -> Self:
        try:
            self._start()
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
        done = self._run(self.in_environment(*command), given, timeout * self.slowness)
        out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(command, done.returncode, out, err)

    def in_environment(self, *command: str) -> list[str]:
        """Return a command that runs `command` with these variables alone."""
        settings = [f"{name}={value}" for name, value in self.environment.items()]
        return ["/usr/bin/env", "--ignore-environment", *settings, *command]

    def _run(
        self, command: Sequence[str], given: bytes, timeout: float
    ) -> subprocess.CompletedProcess[bytes]:
        raise NotImplementedError

    def _start(self) -> None:
        raise NotImplementedError

    def _report(self) -> None:
        """Print what shows why a test failed."""
        raise NotImplementedError

    def _remove(self) -> None:
        """End what was started, all of it or a part."""
        raise NotImplementedError

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

    def is_up(self) -> bool:
        """Return whether systemd has started everything; RuntimeError if a unit failed."""
        state = self.attempt("systemctl", "is-system-running").stdout.strip()
        if state == "degraded":
            failed = self.run("systemctl", "--failed", "--no-legend")
            raise RuntimeError(f"units failed at the start: {failed}")
        return state == "running"

    def report(self) -> None:
        """Print the system's log, which pytest shows if the test fails."""
        with contextlib.suppress(CommandFailedError, subprocess.TimeoutExpired):
            lines = self.journal("--lines=1000", "--output=short-monotonic")
            for line in (line for line in lines if " level=info " not in line):
                click.echo(line, err=True)
