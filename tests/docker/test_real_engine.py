"""The harness's Docker Engine: shared if it runs, else started and stopped.

Here a wrapper around `dockerd` makes it start a private engine, apart from the machine's.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import real_engine
from tests.support.harness import ROOT
from tests.support.real_engine import DockerEngine, engine_answers


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that simulates a machine without an engine and systemd."""
    if Path("/run/systemd/system").is_dir():
        pytest.xfail("with systemd the harness asks it for the machine's own engine")
    program = shutil.which("dockerd")
    assert program is not None
    with tempfile.TemporaryDirectory(prefix="dockerd-") as name:  # short: sockets live in it
        folder = Path(name)
        wrapper = folder / "bin" / "dockerd"
        wrapper.parent.mkdir()
        options = (
            f"--data-root {folder}/data --exec-root {folder}/exec --pidfile {folder}/pid "
            f"--host unix://{folder}/sock"
        )
        # A private network: two engines in one would remove each other's docker0.
        wrapper.write_text(f'#!/bin/sh\nexec unshare --net {program} "$@" {options}\n')
        wrapper.chmod(0o755)
        monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
        monkeypatch.setattr(real_engine, "SOCKET", folder / "sock")
        monkeypatch.setattr(real_engine, "LOCK", folder / "lock")
        monkeypatch.setattr(real_engine, "LOG", folder / "log" / "dockerd.log")
        yield folder
        subprocess.run(
            ["umount", "--quiet", folder / "data"], check=False
        )  # by dockerd, on itself


def test_last_user_stops_the_engine_that_another_started(no_engine: Path) -> None:
    first, second = DockerEngine(), DockerEngine()
    with second:
        pid = int((no_engine / "pid").read_text())
        with first:
            assert engine_answers(no_engine / "sock")
        assert engine_answers(no_engine / "sock")
    assert not engine_answers(no_engine / "sock")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_next_user_takes_over_the_engine_of_a_killed_starter(no_engine: Path) -> None:
    starter = f"""
import os, signal
from pathlib import Path
from tests.support import real_engine
real_engine.SOCKET = Path({str(no_engine / "sock")!r})
real_engine.LOCK = Path({str(no_engine / "lock")!r})
real_engine.LOG = Path({str(no_engine / "log" / "dockerd.log")!r})
with real_engine.DockerEngine():
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", starter], cwd=ROOT, check=False, timeout=50)
    assert done.returncode == -signal.SIGKILL
    with DockerEngine() as engine:
        assert engine_answers(engine.socket)
    assert not engine_answers(no_engine / "sock")


def test_running_engine_of_another_version_is_refused(
    docker_engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "dockerd"
    other.write_text("#!/bin/sh\necho Docker version 99.0.1, build 0\n")
    other.chmod(0o755)
    monkeypatch.setattr(real_engine, "RELEASE", "")
    assert real_engine.engine_unavailable() == ""
    monkeypatch.setattr(real_engine, "RELEASE", "sid")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert re.fullmatch(
        r"Docker Engine \S+ is running: stop it to use that of sid",
        real_engine.engine_unavailable(),
    )
