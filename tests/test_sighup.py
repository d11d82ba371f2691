"""SIGHUP to a program that serves, as of a terminal that is closed."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.harness import AgentProcess, ControlPlaneProcess


@pytest.fixture(params=["agent", "controlplane"])
def process(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[AgentProcess | ControlPlaneProcess]:
    if request.param == "agent":
        with AgentProcess(tmp_path / "none.sock", cpu=4, ram=1024) as agent:
            yield agent
    else:
        with ControlPlaneProcess([], {}) as control_plane:
            yield control_plane


def test_sighup_is_ignored(process: AgentProcess | ControlPlaneProcess) -> None:
    os.kill(process.process.pid, signal.SIGHUP)
    process.process.stop()  # raises for one that SIGHUP ended
