"""Installation without systemd: files, upgrade, rollback and removal."""

import os
import re
import shutil
import stat
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.init.binary import init_program
from tests.support.harness import ROOT, copy_sources, source_files
from tests.systemd.overlaid import FOLDERS, Overlaid
from tests.systemd.wheels import fetched_wheels

pytestmark = [pytest.mark.slow, pytest.mark.root, pytest.mark.timeout(600)]
PROGRAMS = ("agent", "controlplane")
SCRIPT = "/opt/tiltyard/agent/systemd/install"


def version_of_a_service() -> str:
    """Return the version of the Python that programs are installed with, such as `3.11`."""
    find = (ROOT / ".ci" / "prerequisites", "find-python", "--for-service")
    python = subprocess.run(find, check=True, capture_output=True, text=True, timeout=60)
    show = (python.stdout.strip(), "-c", "import sys; print(*sys.version_info[:2], sep='.')")
    shown = subprocess.run(show, check=True, capture_output=True, text=True, timeout=60)
    return shown.stdout.strip()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Overlaid]:
    """A machine that takes the locked packages from a folder."""
    wheels = fetched_wheels(version_of_a_service())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    with tempfile.TemporaryDirectory(prefix="tiltyard-install-", dir="/var/tmp") as folder:
        yield Overlaid(Path(folder))


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Unpacked sources that another user owns."""
    folder = tmp_path / "sources"
    copy_sources(folder)
    for name in source_files():
        os.chown(folder / name, 65534, 65534)
    return folder


def release(machine: Overlaid, link: str) -> str:
    return machine.written(f"/opt/tiltyard/{link}").readlink().name


@pytest.mark.thorough
def test_install_upgrade_rollback_and_purge(machine: Overlaid, sources: Path) -> None:
    state = machine.written("/var/lib/tiltyard-agent")
    state.mkdir()
    (state / "agent_id").touch()  # of an agent that root ran manually
    machine.run("make", "wheel", cwd=sources)
    [wheel] = (sources / "dist").iterdir()

    _break_off(machine, sources, wheel)
    for program in PROGRAMS:
        output = machine.run("make", f"install-{program}", cwd=sources)
        assert "systemd does not run here: nothing was started" in output
        assert f"systemctl start tiltyard-{program}" in output
    _everything_is_in_place(machine)
    first = release(machine, "agent")
    assert release(machine, "controlplane") == first
    assert "nothing has changed" in machine.run("make", "install-agent", cwd=sources)

    second = _upgrade_the_agent(machine, sources)
    assert release(machine, "agent.before") == first
    assert release(machine, "controlplane") == first
    assert f"agent: now {first}" in machine.run(SCRIPT, "back", "agent")
    assert release(machine, "agent") == first
    assert release(machine, "agent.before") == second
    assert machine.run("tiltyard-agent", "--version").split()[-1] == first.rpartition("-")[0]

    _go_back_and_forth_while_nothing_starts(machine, first, second)
    _uninstall(machine, sources)


def _go_back_and_forth_while_nothing_starts(machine: Overlaid, first: str, second: str) -> None:
    systemctl = machine.written("/usr/local/bin/systemctl")
    systemctl.write_text('#!/bin/sh\n[ "$1" != is-active ] || echo failed\n', "utf-8")
    systemctl.chmod(0o755)
    systemd_runs = 'mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && exec "$@"'
    for expected in (second, first, second, first):
        output = machine.run("sh", "-c", systemd_runs, "sh", SCRIPT, "back", "agent")
        assert f"agent: now {expected}" in output
        assert release(machine, "agent") == expected
    systemctl.unlink()


def _break_off(machine: Overlaid, sources: Path, wheel: Path) -> None:
    """Check that an incomplete release is not used; the next installation recreates it."""
    nowhere = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": "/nowhere"}
    code, _ = machine.attempt(
        sources / "systemd/install", "install", "agent", wheel, environment=nowhere
    )
    assert code != 0
    assert machine.written("/opt/tiltyard/releases").is_dir()
    assert not machine.written("/opt/tiltyard/agent").is_symlink()


def _everything_is_in_place(machine: Overlaid) -> None:
    code = "from agent.init.binary import init_program; init_program()"
    machine.run("/opt/tiltyard/agent/bin/python", "-c", code)
    for program in PROGRAMS:
        unit = f"tiltyard-{program}"
        text = machine.run("cat", f"/usr/local/lib/systemd/system/{unit}.service")
        assert text == (ROOT / "systemd" / f"{unit}.service").read_text("utf-8")
        for path in re.findall(r"/(?:opt|etc|usr|bin)/[\w/.-]+", text):
            machine.run("test", "-e", path)
        settings = f"/etc/tiltyard/{program}.toml"
        # setpriv itself starts a program with root's capabilities.
        user = ["setpriv", f"--reuid={unit}", f"--regid={unit}", "--init-groups", "sh", "-c"]
        machine.run(*user, f"{unit} config check --config {settings}")
        shown = machine.run("stat", "--format=%U:%G %a %n", settings, f"/var/lib/{unit}")
        assert shown == f"root:{unit} 640 {settings}\n{unit}:{unit} 700 /var/lib/{unit}\n"
    assert machine.run("stat", "--format=%U", "/var/lib/tiltyard-agent/agent_id").strip() == (
        "tiltyard-agent"
    )
    assert "docker" in machine.run("id", "--name", "--groups", "tiltyard-agent").split()
    assert machine.setting("net/ipv4/ping_group_range").read_text() == "0 2147483647\n"
    assert machine.setting("fs/inotify/max_user_instances").read_text() == "8192\n"
    assert machine.setting("kernel/keys/maxbytes").read_text() == "200000\n"
    assert machine.setting("kernel/keys/maxkeys").read_text() == "5000\n"  # it was more already
    for path in machine.written("/opt/tiltyard").rglob("*"):
        found = path.lstat()
        assert found.st_uid == 0, path
        assert found.st_gid == 0, path
        assert path.is_symlink() or not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH), path


def _upgrade_the_agent(machine: Overlaid, sources: Path) -> str:
    project = sources / "pyproject.toml"
    settings = machine.written("/etc/tiltyard/agent.toml")
    first = release(machine, "agent")
    text = project.read_text("utf-8")
    project.write_text(re.sub(r'(?m)^version = "(.+)"$', r'version = "\1.1"', text), "utf-8")
    kept = settings.read_text("utf-8") + "# the operator's own line\n"
    settings.write_text(f"{kept}nonsense = 1\n", "utf-8")
    code, output = machine.attempt("make", "install-agent", cwd=sources)
    assert code != 0
    assert "nonsense" in output
    assert "nothing was changed" in output
    assert release(machine, "agent") == first
    settings.write_text(kept, "utf-8")
    machine.run("make", "install-agent", cwd=sources)
    assert release(machine, "agent") != first
    assert settings.read_text("utf-8") == kept
    return release(machine, "agent")


def _uninstall(machine: Overlaid, sources: Path) -> None:
    state = machine.written("/var/lib/tiltyard-agent")
    (state / "sessions" / "one").mkdir(parents=True)
    code, output = machine.attempt(SCRIPT, "uninstall", "agent")
    assert code == 1
    assert output.count("FORCE=1") == 1
    _keeps_an_agent_whose_state_is_elsewhere(machine, state)
    assert "PURGE=1" in machine.run(SCRIPT, "uninstall", "agent", environment={"FORCE": "1"})
    assert (state / "agent_id").exists()
    assert machine.run("tiltyard-controlplane", "--version")
    shutil.rmtree(state / "sessions")
    other = machine.written("/var/lib/other")
    state.rename(other)
    settings = machine.written("/etc/tiltyard/agent.toml")
    settings.write_text(f'state_dir = "/var/lib/other"\n{settings.read_text("utf-8")}', "utf-8")
    for program in PROGRAMS:
        machine.run("make", f"uninstall-{program}", "PURGE=1", cwd=sources)
    left = [
        path
        for folder in FOLDERS
        for path in (machine.folder / folder / "upper").rglob("*tiltyard*")
        if not path.is_char_device()  # whiteout of a removed file
    ]
    assert left == []
    assert not other.exists()
    assert machine.attempt("id", "tiltyard-agent")[0] == 1


def _keeps_an_agent_whose_state_is_elsewhere(machine: Overlaid, state: Path) -> None:
    settings = machine.written("/etc/tiltyard/agent.toml")
    text = settings.read_text("utf-8")
    other = machine.written("/var/lib/other")
    state.rename(other)
    moved_to = f'state_dir = "/var/lib/other"\n{text}'
    for moved in (moved_to, f"nonsense = 1\n{moved_to}"):
        settings.write_text(moved, "utf-8")
        code, output = machine.attempt(SCRIPT, "uninstall", "agent")
        assert code == 1
        assert "cannot tell whether sessions run here: start the agent" in output
    settings.write_text(text, "utf-8")
    other.rename(state)


@pytest.mark.parametrize(
    "architecture",
    [
        "x86_64",
        pytest.param("aarch64", marks=pytest.mark.thorough),
    ],
)
def test_wheel_has_the_first_process_of_containers_for_its_machines(
    machine: Overlaid, sources: Path, architecture: str
) -> None:
    machine.run("make", "wheel", f"ARCH={architecture}", cwd=sources)
    [wheel] = (sources / "dist").iterdir()
    assert wheel.name.endswith(f"-py3-none-manylinux2014_{architecture}.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extract("agent/init/bin/tiltyard-init", sources)
        names = archive.namelist()
    assert init_program(sources / "agent/init/bin/tiltyard-init", architecture).data
    assert [name for name in names if name.endswith((".c", ".h"))] == []


@pytest.mark.parametrize("theirs", [None, '{"icc": true}'])
def test_installing_engine_keeps_existing_daemon_settings(
    machine: Overlaid, tmp_path: Path, theirs: str | None
) -> None:
    """The script finds no engine, and apt-get is replaced by an echo."""
    script = (ROOT / ".ci" / "prerequisites").read_text("utf-8")
    script = re.sub(r"(?m)^has\(\) .*$", "has() { [ $1 = iptables ]; }", script)
    script = script.replace("/run/docker.sock", "/nowhere")
    (tmp_path / "prerequisites").write_text(script, "utf-8")
    (tmp_path / "apt-get").write_text('#!/bin/sh\necho "asked to $*"\n', "utf-8")
    (tmp_path / "apt-get").chmod(0o755)
    settings = "/etc/docker/daemon.json"
    machine.run("rm", "--force", settings)
    if theirs is not None:
        (tmp_path / "theirs").write_text(theirs, "utf-8")
        machine.run("install", "-D", tmp_path / "theirs", settings)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ("bash", tmp_path / "prerequisites", "host")
    output = machine.run(*command, cwd=ROOT, environment=path)
    assert "asked to install --yes --quiet --no-install-recommends docker.io" in output
    ours = (ROOT / "systemd" / "daemon.json").read_text("utf-8")
    assert machine.run("cat", settings) == (theirs or ours)
