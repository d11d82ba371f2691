"""Installation without systemd: files, upgrade, rollback and removal."""

import os
import re
import shutil
import stat
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.init.binary import init_program
from tests.support.harness import ROOT, copy_sources, source_files
from tests.systemd.wheels import fetched_wheels

FOLDERS = ("etc", "opt", "usr/local", "var/lib")  # Folders that an installation writes to
SETTINGS = {
    "net/ipv4/ping_group_range": "1\t0",
    "net/core/netdev_max_backlog": "1000",
    "fs/inotify/max_user_instances": "128",
    "kernel/keys/maxkeys": "5000",
    "kernel/keys/maxbytes": "20000",
}
"""Settings of the kernel before an installation."""
_COMMAND_TIMEOUT = 300.0
_ENTER = """
set -e
folder=$1
shift
# In a container, these are separate mounts.
cp --dereference /etc/resolv.conf /etc/hosts "$folder/names" 2>/dev/null || true
for each in $FOLDERS; do
  mount -t overlay overlay "/$each" \\
    -o "lowerdir=/$each,upperdir=$folder/$each/upper,workdir=$folder/$each/work"
done
cp --remove-destination "$folder"/names/* /etc
[ ! -d /run/systemd ] || mount -t tmpfs tmpfs /run/systemd
for each in $SETTINGS; do
  mount --bind "$folder/sys/$each" "/proc/sys/$each"
done
exec "$@"
"""


class Overlaid:
    """An overlay of this machine's files that keeps writes between commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for each in FOLDERS:
            (folder / each / "upper").mkdir(parents=True)
            (folder / each / "work").mkdir()
        (folder / "names").mkdir()
        for name, value in SETTINGS.items():
            file = self.setting(name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{value}\n")

    def setting(self, name: str) -> Path:
        """Return the file in the place of a setting of the kernel."""
        return self.folder / "sys" / name

    def attempt(
        self,
        *command: str | Path,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> tuple[int, str]:
        """Run a command; return its exit code and output, including stderr."""
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", _ENTER, "sh", self.folder, *command],
            cwd=cwd,
            env={
                **os.environ,
                "FOLDERS": " ".join(FOLDERS),
                "SETTINGS": " ".join(SETTINGS),
                **(environment or {}),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_COMMAND_TIMEOUT,
        )
        return done.returncode, done.stdout

    def run(self, *command: str | Path, **options: Any) -> str:
        """Attempt a command that must succeed and return its output."""
        code, output = self.attempt(*command, **options)
        assert code == 0, output
        return output

    def written(self, path: str) -> Path:
        """Return where the overlay stores a path."""
        [each] = [each for each in FOLDERS if path.startswith(f"/{each}/")]
        return self.folder / each / "upper" / path.removeprefix(f"/{each}/")


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

    _uninstall(machine, sources)


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
    assert "PURGE=1" in machine.run(SCRIPT, "uninstall", "agent", environment={"FORCE": "1"})
    assert (state / "agent_id").exists()
    assert machine.run("tiltyard-controlplane", "--version")
    shutil.rmtree(state / "sessions")
    for program in PROGRAMS:
        machine.run("make", f"uninstall-{program}", "PURGE=1", cwd=sources)
    left = [
        path
        for folder in FOLDERS
        for path in (machine.folder / folder / "upper").rglob("*tiltyard*")
        if not path.is_char_device()  # whiteout of a removed file
    ]
    assert left == []
    assert machine.attempt("id", "tiltyard-agent")[0] == 1


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
