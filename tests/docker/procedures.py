"""The procedures of docs/operations.md, typed line by line by an operator."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.docker.operated_host import run
from tests.support.doc_examples import examples
from tests.support.harness import ROOT, AgentProcess, ControlPlaneProcess

PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8")
_UNITS = {"tiltyard-controlplane", "tiltyard-agent"}
_MAY_FIND_FAULTS = "tiltyard-agent doctor"  # The command that may exit with 1 to report problems


def commands(heading: str) -> list[str]:
    """The commands of one section, without subsections."""
    return [each.command.partition("  #")[0] for each in examples(PAGE) if each.heading == heading]


class Procedure:
    """The commands of a section, all of which must be typed in order."""

    def __init__(self, shell: Shell, heading: str) -> None:
        self._shell = shell
        self.left = commands(heading)

    def type(self, begin: str) -> str:
        """Type the next line, which must begin with `begin`; return its output."""
        line = self.left.pop(0)
        assert line.startswith(begin), f"{line!r} stands where {begin!r} should be"
        return self._shell.type([line])[0]


class Shell:
    """A shell with the programs by name and files in its own folder.

    Paths and addresses of the page are replaced by those of the test; `say` adds some.
    """

    def __init__(
        self, folder: Path, agent: AgentProcess, plane: ControlPlaneProcess | None = None
    ) -> None:
        self.folder = folder
        self._agent = agent
        self._plane = plane
        self._shown: dict[str, str] = {
            "/var/lib/tiltyard-agent": str(agent.state_dir),
            "/etc/tiltyard/agent.toml": str(agent.config),
            "tiltyard-agent enrol": f"tiltyard-agent enrol --config {agent.config}",
            "tiltyard-agent doctor": f"tiltyard-agent doctor --config {agent.config}",
        }
        self._environment = {
            **os.environ,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "TILTYARD_AGENT_SOCKET": str(agent.socket),
        }
        self._install("tiltyard-agent", *agent.wrapper, sys.executable, "-m", "agent")
        if plane is None:
            return
        token = folder / "operator.token"
        token.write_text(plane.operator_token)
        self._shown |= {
            "/etc/tiltyard/controlplane.toml": str(plane.config),
            "/var/lib/tiltyard-controlplane": str(plane.state_dir),
            "/var/backups": str(folder),
            "/root/tokens.json": str(folder / "tokens.json"),
        }
        self.set(TILTYARD_URL=plane.base_url, TILTYARD_TOKEN_FILE=str(token))
        self._install("tiltyard-controlplane", sys.executable, "-m", "controlplane")

    def say(self, shown: Mapping[str, str]) -> None:
        """Add replacements for texts of the page."""
        self._shown |= shown

    def set(self, **variables: str) -> None:
        """Set environment variables."""
        self._environment |= variables

    def type(self, lines: list[str]) -> list[str]:
        """Type lines one after the other; return their outputs."""
        return [self._line(line) for line in lines]

    @contextmanager
    def procedure(self, heading: str) -> Iterator[Procedure]:
        """Provide the commands of a section, all of which must be typed."""
        procedure = Procedure(self, heading)
        assert procedure.left, f"there is no command below {heading!r}"
        yield procedure
        assert procedure.left == []

    def _install(self, name: str, *command: str) -> None:
        program = self.folder / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {" ".join(command)} "$@"\n')
        program.chmod(0o755)

    def _line(self, line: str) -> str:
        words = line.split()
        if words[0] == "systemctl":
            self._systemctl(*words[1:])
            return ""
        for shown, here in self._shown.items():
            line = line.replace(shown, here)
        codes = {0, 1} if line.startswith(_MAY_FIND_FAULTS) else {0}
        command = ["bash", "-euo", "pipefail", "-c", line]
        return run(command, folder=self.folder, environment=self._environment, codes=codes)

    def _systemctl(self, verb: str, unit: str) -> None:
        assert unit in _UNITS, unit
        part = self._agent if unit == "tiltyard-agent" else self._plane
        assert part is not None, unit
        if verb == "stop":
            part.kill()  # it may be broken
            return
        assert verb == "start", verb
        if part is self._agent:  # its settings may have been edited
            part.settings = tomllib.loads(part.config.read_text())
            part.state_dir = Path(str(part.settings["state_dir"]))
        part.start()
