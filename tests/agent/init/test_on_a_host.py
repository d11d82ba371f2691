"""Where the agent of a host keeps the init, and what it says if that cannot be executed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent.doctor.gather import gather
from agent.init.binary import InitProgram, init_program
from agent.state.init_programs import install
from tests.agent.test_doctor import config_of, run, settings_of
from tests.support.harness import ROOT, to_toml
from tiltyard.runtime.settings import EXIT_CONFIG


def test_executes_first_process_of_containers_where_it_is_kept(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    assert gather(config_of(tmp_path)).init is None
    path = install(config_of(tmp_path).state_dir, init_program())
    assert gather(config_of(tmp_path)).init == ""
    path.chmod(0o644)
    assert gather(config_of(tmp_path)).init == f"cannot execute {path}: Permission denied"
    path.write_text("#!/bin/sh\nexit 3\n")
    path.chmod(0o755)
    assert gather(config_of(tmp_path)).init == f"cannot execute {path}: it ended with 3"


@pytest.fixture
def no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without the program."""

    def missing() -> InitProgram:
        return init_program(tmp_path / "none")

    for user in ("agent.doctor.host_facts", "agent.app.daemon"):
        monkeypatch.setattr(f"{user}.init_program", missing)


@pytest.mark.usefixtures("no_program")
def test_reports_installation_without_first_process_of_containers(tmp_path: Path) -> None:
    result = run(tmp_path, "doctor")
    assert re.search("^FAIL  init  +cannot read .*: No such file", result.stdout, re.MULTILINE)


@pytest.mark.root
def test_reports_state_directory_without_execution(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "agent.toml").write_text(to_toml(settings_of(tmp_path)))
    script = """
        mount -t tmpfs -o noexec,mode=0700 tmpfs "$1/state"
        "$0" -c 'import sys; from pathlib import Path
from agent.init.binary import init_program
from agent.state.init_programs import install
install(Path(sys.argv[1]), init_program())' "$1/state"
        exec "$0" -m agent doctor --config "$1/agent.toml"
    """
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, sys.executable, tmp_path],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert re.search(
        "^FAIL  init  +cannot execute .*: Permission denied$", done.stdout, re.MULTILINE
    )


@pytest.mark.usefixtures("no_program")
def test_agent_does_not_start_without_first_process_of_containers(tmp_path: Path) -> None:
    result = run(tmp_path, "serve")
    assert result.exit_code == EXIT_CONFIG
    assert f"it does not start: cannot read {tmp_path}/none: No such file" in result.stderr
    assert not (tmp_path / "state").exists()
