"""Enrol hosts with the real commands of an operator."""

import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tests.support.harness import ROOT, AgentProcess, ControlPlaneProcess

_TIMEOUT = 60.0  # Timeout of a command in seconds


class Operator:
    """An operator of a control plane that enrols hosts at `enrol_url`."""

    def __init__(self, control_plane: ControlPlaneProcess, enrol_url: str) -> None:
        self._control_plane = control_plane
        self.enrol_url = enrol_url

    def run(self, *arguments: str) -> str:
        """Run a command of `tiltyard-controlplane`; return its output."""
        token_file = self._control_plane.folder / "operator.token"
        token_file.write_text(self._control_plane.operator_token)
        options = ("--url", self._control_plane.base_url, "--token-file", str(token_file))
        return run([sys.executable, "-m", "controlplane", *arguments, *options])

    def enrol(self, agent: AgentProcess, name: str, *options: str) -> str:
        """Enrol a host by this name, also again; return the output."""
        token = self.run("agent", "token", *options)
        program = [*agent.wrapper, sys.executable, "-m", "agent", "enrol", self.enrol_url]
        return run([*program, "--config", str(agent.config), "--name", name], typed=token)

    def shown(self, name: str) -> dict[str, Any]:
        """An agent as operators see it."""
        answer = self._control_plane.operator.get(f"/operator/agent/{name}").expect(200)
        return dict(answer.json())

    def is_ready(self, name: str) -> bool:
        return bool(self.shown(name)["state"] == "ready")


def run(
    command: list[str],
    *,
    typed: str = "",
    folder: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    codes: Collection[int] = (0,),
) -> str:
    """Run a command that must end with one of these codes; return its output."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment or {**os.environ, "PYTHONPATH": str(ROOT)},
        input=typed,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    assert done.returncode in codes, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout
