"""Engines of tests: a private one leaves no trace; the machine's is shared, else started.

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
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.demo_game import UDP_PORT
from tests.demo_game.player import udp_round_trip
from tests.docker.machine import Machine
from tests.support import real_engine
from tests.support.harness import ROOT
from tests.support.private_engine import PrivateEngine, cgroups
from tests.support.private_network import run
from tests.support.real_engine import DockerEngine, accepts, engine_answers


def traces(engine: PrivateEngine) -> list[str]:
    """Processes and kernel objects of this machine that belong to the engine."""
    left = [str(engine.folder)] if engine.folder.exists() else []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
            groups = (path / "cgroup").read_bytes()
        except OSError:
            continue  # it ended
        words = command + groups
        # One that ended, and that its parent has not waited for yet, has only its cgroups left.
        if command and engine.folder.name.encode() in words:
            left.append(words.replace(b"\0", b" ").decode(errors="replace"))
    for listing in (Path("/proc/mounts").read_text(), run("ip", "link")):
        left += [
            line
            for line in listing.splitlines()
            if engine.folder.name in line or engine.network.name in line
        ]
    left += map(str, cgroups(engine.folder.name))
    left += [name for name in run("ip", "netns").splitlines() if engine.network.name in name]
    return left


def test_a_game_outlives_its_engine_and_ends_with_the_context() -> None:
    engine = PrivateEngine()
    with ExitStack() as stack:
        machine = Machine(stack.enter_context(engine))
        stack.enter_context(closing(machine.client))
        published = {f"{UDP_PORT}/udp": None}
        container = machine.client.containers.run(machine.image, detach=True, ports=published)

        def plays() -> int:
            """Play a round; return the game's process."""
            container.reload()
            bound = container.ports[f"{UDP_PORT}/udp"]
            assert bound
            udp_round_trip(engine.network.address, int(bound[0]["HostPort"]))
            return int(container.attrs["State"]["Pid"])

        process = plays()
        engine.kill()
        engine.start()
        assert plays() == process
        engine.stop()
        engine.start()
        assert plays() == process
        assert len(traces(engine)) > 5
        sockets = engine.shim_sockets()
        assert sockets
        assert all(map(accepts, sockets))
    assert traces(engine) == []
    assert not any(path.exists() for path in sockets)


def test_an_engine_that_cannot_start_leaves_nothing() -> None:
    engine = PrivateEngine({"no-such-setting": True})
    with pytest.raises(RuntimeError, match="no-such-setting"), engine:
        pass
    assert traces(engine) == []


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
    first = DockerEngine()
    second = DockerEngine()
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
