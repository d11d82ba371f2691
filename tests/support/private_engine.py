"""A private Docker Engine of a test, to be killed, paused, filled up and rebooted.

It shares nothing with the machine's engine: it has its own network namespace, containerd, cgroup
and folders. A veth pair connects its namespace with the test's.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.support.harness import Process
from tests.support.private_network import ADDRESSES, PrivateNetwork, run
from tests.support.real_engine import UnavailableError, ends, engine_answers

_SETTINGS = {
    "live-restore": True,
    "icc": False,
    "insecure-registries": [str(ADDRESSES)],
    "bip": "198.20.0.1/24",  # only visible in the namespace, so each engine may have the same
    # With systemd's driver only systemd could remove a leftover cgroup.
    "exec-opts": ["native.cgroupdriver=cgroupfs"],
}
_END_TIMEOUT = 30.0  # Seconds in which SIGKILL ends a process, even one that writes to a slow disk


class PrivateEngine:
    """dockerd and containerd in their own network namespace.

    `settings` are keys of daemon.json in addition to the shipped and the isolating ones.
    `data_root` is a folder on a disk that may be filled (see `small_disk`) and reused by a later
    engine. `hosts` are further addresses beside `socket`; `programs` is a folder that precedes
    PATH. Leaving the context removes everything, whatever the state of the engine.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        data_root: Path | None = None,
        hosts: Sequence[str] = (),
        programs: Path | None = None,
    ) -> None:
        missing = [name for name in ("dockerd", "containerd", "ip") if shutil.which(name) is None]
        if missing or os.geteuid() != 0:
            why = f"a private engine needs root, docker.io and iproute2: no {missing}"
            raise UnavailableError(why)
        # In /tmp, whatever TMPDIR says: the path of a unix socket has at most 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="tye-", dir="/tmp"))
        self.data_root = (data_root or self.folder) / "docker"
        self.socket = self.folder / "docker.sock"
        self.network = PrivateNetwork()
        self._settings = {**_SETTINGS, **(settings or {})}
        self._hosts = hosts
        self._path = f"{programs}:{os.environ['PATH']}" if programs else os.environ["PATH"]
        self._dockerd = Process("dockerd", self.folder / "dockerd.log")
        self._containerd = Process("containerd", self.folder / "containerd.log")
        self._is_on = False
        self.ends = 0  # The number of times that dockerd was ended

    @property
    def pid(self) -> int:
        """The pid of dockerd while it runs."""
        return self._dockerd.pid

    def __enter__(self) -> Self:
        try:
            self.network.make()
            self._write_settings()
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def start(self) -> None:
        """Start dockerd, and containerd if needed, and wait until it answers."""
        if not self._is_on or self._containerd.returncode is not None:
            self.start_containerd()
        self._dockerd.kill()  # notices one that a test killed
        self.socket.unlink(missing_ok=True)
        (self.folder / "docker.pid").unlink(missing_ok=True)  # its pid may have been reused
        options = {
            "config-file": self.folder / "daemon.json",
            "containerd": self.folder / "containerd.sock",
            "data-root": self.data_root,
            "exec-root": self.folder / "exec",
            "pidfile": self.folder / "docker.pid",
        }
        self._dockerd.launch(
            self.network.inside(
                "env",
                f"PATH={self._path}",
                "dockerd",
                *(f"--{name}={value}" for name, value in options.items()),
            ),
            lambda: engine_answers(self.socket),
        )

    def kill_containerd(self) -> None:
        """Kill containerd by SIGKILL, and wait for its end; shims and containers continue."""
        self._containerd.kill()

    def start_containerd(self) -> None:
        """Start containerd after it was killed."""
        self._containerd.kill()
        self._containerd.launch(
            self.network.inside("containerd", "--config", str(self.folder / "containerd.toml")),
            (self.folder / "containerd.sock").is_socket,
        )
        self._is_on = True

    def stop(self) -> None:
        """Stop dockerd by SIGTERM; with live-restore its containers keep running."""
        self.ends += 1
        self._dockerd.stop()

    def kill(self) -> None:
        """Kill dockerd by SIGKILL, and wait for its end."""
        self.ends += 1
        self._dockerd.kill()

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        """Make dockerd hang meanwhile: it accepts connections but does not answer."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def power_off(self) -> None:
        """Kill everything at once, including containers, as before a reboot."""
        self._is_on = False
        self.kill()
        self._containerd.kill()  # first: it removes what is read and removed here
        state = self.folder / "containerd"
        for freezer in Path("/sys/fs/cgroup").glob(f"freezer/{self.folder.name}/*/freezer.state"):
            freezer.write_text("THAWED")  # otherwise a paused container would not end
        _end(int(path.read_text()) for path in state.rglob("init.pid") if path.read_text())
        deadline = time.monotonic() + _END_TIMEOUT
        while self.network.name and (pids := self.network.pids()):
            if time.monotonic() > deadline:
                raise RuntimeError(f"processes {pids} still start in {self.network.name}")
            _end(pids)  # again, since a shim may have started a process meanwhile
        for path in self.shim_sockets():
            path.unlink(missing_ok=True)
        for mount in _mounts_below(self.folder, self.data_root):
            run("umount", mount)
        remove_cgroups(self.folder.name)
        for name in ("containerd", "containerd.sock", "docker.sock", "exec"):
            _remove_path(self.folder / name)

    def shim_sockets(self) -> list[Path]:
        """The sockets of its shims, in a folder shared by all containerds of a machine."""
        state = self.folder / "containerd"
        addresses = [path.read_text() for path in state.rglob("address")]
        addresses += [  # since containerd 2
            json.loads(path.read_text())["address"] for path in state.rglob("bootstrap.json")
        ]
        return [Path(address.removeprefix("unix://")) for address in addresses]

    def _write_settings(self) -> None:
        settings = {"cgroup-parent": f"/{self.folder.name}", **self._settings}
        settings["hosts"] = [f"unix://{self.socket}", *self._hosts]
        (self.folder / "daemon.json").write_text(json.dumps(settings))
        # Not the system's containerd, which dockerd would use by default.
        (self.folder / "containerd.toml").write_text(
            "version = 2\n"
            f'root = "{self.folder}/containerd-root"\n'
            f'state = "{self.folder}/containerd"\n'
            'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
            f'[grpc]\naddress = "{self.folder}/containerd.sock"\n'
        )

    def _remove(self) -> None:
        try:
            self.power_off()
        finally:
            self.network.remove()
            shutil.rmtree(self.folder)


BTRFS = ("mkfs.btrfs", "-q")
"""Makes a file system on which an engine can limit the writes of containers."""


@contextlib.contextmanager
def small_disk(
    folder: Path, megabytes: int, make: Sequence[str] = ("mkfs.ext4", "-q", "-m", "0")
) -> Iterator[Path]:
    """Mount a disk of this size, which may be filled completely, within `folder`."""
    image = folder / "disk.image"
    disk = folder / "disk"
    disk.mkdir(parents=True)
    with image.open("wb") as file:
        file.truncate(megabytes * 2**20)
    run(*make, str(image))
    run("mount", "-o", "loop", str(image), str(disk))
    try:
        yield disk
    finally:
        run("umount", str(disk))
        disk.rmdir()
        image.unlink()


def _end(pids: Iterable[int]) -> None:
    """Send SIGKILL to processes and wait for their end."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            if not ends(pid, signal.SIGKILL, _END_TIMEOUT):
                raise RuntimeError(f"process {pid} does not end")


def _mounts_below(*folders: Path) -> list[str]:
    """Mounts in or on these folders, the newest first."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), line.split()[4])
        if any(Path(mount).is_relative_to(folder) for folder in folders):
            found.append(mount)
    return found[::-1]


def cgroups(name: str) -> list[Path]:
    """All cgroups of this name; those of other engines may change meanwhile."""
    paths = (Path(path) for path, _, _ in os.walk("/sys/fs/cgroup"))
    return [path for path in paths if path.name == name]


def remove_cgroups(name: str) -> None:
    """Remove all cgroups of this name."""
    for folder in cgroups(name):
        _remove_cgroup(folder)


def _remove_cgroup(folder: Path) -> None:
    """Remove a cgroup without processes; it may be busy just after a kill."""
    deadline = time.monotonic() + _END_TIMEOUT
    for path, _, _ in os.walk(folder, topdown=False):
        while True:
            try:
                Path(path).rmdir()
                break
            except FileNotFoundError:  # removed by one of the killed processes at its end
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)


def _remove_path(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
