"""The machine's Docker Engine: the running one, else a temporary one."""

import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, Any, Self

import docker

ROOT = Path(__file__).resolve().parents[2]
SOCKET = Path("/run/docker.sock")
DAEMON_JSON = Path("/etc/docker/daemon.json")
LOCK = Path("/run/tiltyard-dockerd.lock")
LOG = ROOT / ".tiltyard" / "dockerd.log"

RELEASE = os.environ.get("TILTYARD_TEST_ENGINE", "")
"""The Debian release whose engine comes first in PATH (`make ENGINE=…`); "" for the machine's."""

SHIPPED = ROOT / "systemd" / "daemon.json"
"""The recommended /etc/docker/daemon.json, used by test engines."""

_START_TIMEOUT = 60.0  # dockerd takes 3 s; a first start on a slow disk takes longer
_STOP_TIMEOUT = 40.0  # dockerd limits its shutdown to 15 s, and its containerd adds to that
_ANSWER_TIMEOUT = 5


class UnavailableError(Exception):
    """A real part that is unavailable; the message says what to do."""


def accepts(path: Path) -> bool:
    """Return whether a server accepts connections on this unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def engine_answers(path: Path) -> bool:
    """Return whether an engine answers `info` on this socket.

    Not by the SDK, which leaves a socket to the garbage collector where that warns if the engine
    is just starting or ending.
    """
    with socket.socket(socket.AF_UNIX) as engine:
        engine.settimeout(_ANSWER_TIMEOUT)
        try:
            engine.connect(str(path))
            engine.sendall(b"GET /info HTTP/1.0\r\nHost: docker\r\n\r\n")
            with engine.makefile("rb") as answer:
                return answer.readline().split()[1:2] == [b"200"]
        except OSError:  # TimeoutError is one
            return False


def engine_unavailable() -> str:
    """Return why this user cannot have an engine on this machine; empty if it can."""
    if engine_answers(SOCKET):
        return _other_engine() if RELEASE else ""
    if os.geteuid() != 0:
        return f"no Docker Engine answers on {SOCKET} and starting one needs root"
    if shutil.which("dockerd") is None:
        return "there is no dockerd: install the package docker.io"
    return ""


def _other_engine() -> str:
    """Return that the running engine is not the one in PATH; empty if it is."""
    with closing(docker.DockerClient(f"unix://{SOCKET}", timeout=round(_START_TIMEOUT))) as client:
        version = client.version()["Version"]
    wanted = subprocess.check_output(["dockerd", "--version"], text=True)
    if f" {version}," in wanted:
        return ""
    return f"Docker Engine {version} is running: stop it to use that of {RELEASE}"


class DockerEngine:
    """Uses the running engine, else starts one and stops it at the end.

    Several users share an engine that one of them started: each holds a shared lock on a file, and
    the last one to leave stops it, even if the starting one was killed.
    """

    def __init__(self) -> None:
        self.socket = SOCKET
        self._lock: IO[str] | None = None
        self._daemon: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        reason = engine_unavailable()
        if reason:
            raise UnavailableError(reason)
        if os.geteuid() != 0:
            return self  # another user's engine, not ours to stop
        self._lock = LOCK.open("a+")
        try:
            self._join_or_start(self._lock)
        except BaseException:
            self._lock.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is None:
            return
        with self._lock as lock:
            if not try_lock(lock, fcntl.LOCK_EX):
                if self._daemon is not None:  # another user still needs it, and will stop it
                    self._daemon.returncode = 0  # else the end of this process would warn
                return
            lock.seek(0)
            note = lock.read()
            if note:
                self._stop(json.loads(note))
                lock.truncate(0)

    def _join_or_start(self, lock: IO[str]) -> None:
        """Return with a shared lock and a responsive engine."""
        deadline = time.monotonic() + _START_TIMEOUT + _STOP_TIMEOUT
        while time.monotonic() < deadline:
            if try_lock(lock, fcntl.LOCK_EX):
                if not engine_answers(self.socket):
                    self._start(lock)
                fcntl.flock(lock, fcntl.LOCK_SH)
                return
            if try_lock(lock, fcntl.LOCK_SH):
                if engine_answers(self.socket):
                    return
                fcntl.flock(lock, fcntl.LOCK_UN)
            time.sleep(0.1)  # another user starts or stops it
        raise RuntimeError(f"somebody holds {LOCK} without an engine")

    def _start(self, lock: IO[str]) -> None:
        lock.truncate(0)
        if Path("/run/systemd/system").is_dir():
            subprocess.run(["systemctl", "start", "docker"], check=True, timeout=_START_TIMEOUT)
            note: dict[str, Any] = {"systemd": True}
        else:
            self._daemon = _launch()
            note = {"pid": self._daemon.pid, "started": _started(self._daemon.pid)}
        lock.write(json.dumps(note))
        lock.flush()
        try:
            self._wait_until_it_answers()
        except BaseException:
            self._stop(note)
            lock.truncate(0)
            raise

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT
        while not engine_answers(self.socket):
            if self._daemon is not None and self._daemon.poll() is not None:
                raise RuntimeError(f"dockerd ended with {self._daemon.returncode}:\n{_tail()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"dockerd did not answer in time:\n{_tail()}")
            time.sleep(0.1)

    def _stop(self, note: dict[str, Any]) -> None:
        if note.get("systemd"):
            units = ["docker.socket", "docker.service"]
            subprocess.run(["systemctl", "stop", *units], check=True, timeout=_STOP_TIMEOUT)
            return
        pid = note["pid"]
        if _started(pid) != note["started"]:
            return  # it has ended, and its pid may have been reused
        if not ends(pid, signal.SIGTERM, _STOP_TIMEOUT):
            raise RuntimeError(f"dockerd (pid {pid}) did not end:\n{_tail()}")
        if self._daemon is not None:
            self._daemon.wait()


def ends(pid: int, number: signal.Signals, timeout: float) -> bool:
    """Send a signal to a process; return whether it ends in time."""
    process = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(process, number)
        return bool(select.select([process], [], [], timeout)[0])
    finally:
        os.close(process)


def remove_traces(docker_socket: Path, registry_address: str) -> list[str]:
    """Remove all containers and images from this registry; return the containers' names.

    Each run's registry has its own address, so that other containers are not touched.
    """
    prefix = f"{registry_address}/"
    with closing(docker.DockerClient(f"unix://{docker_socket}", timeout=60)) as client:
        images = {}
        for image in client.api.images():
            names = (image.get("RepoTags") or []) + (image.get("RepoDigests") or [])
            ours = [name for name in names if name.startswith(prefix)]
            if ours:
                images[image["Id"]] = ours
        removed = []
        for container in client.api.containers(all=True):
            if container["ImageID"] in images or container["Image"].startswith(prefix):
                client.api.remove_container(container["Id"], force=True, v=True)
                removed.append(container["Names"][0].removeprefix("/"))
        for names in images.values():
            for name in names:
                with suppress(docker.errors.ImageNotFound):  # its digests go with the last tag
                    client.api.remove_image(name, force=True)
        return removed


def try_lock(lock: IO[str], kind: int) -> bool:
    """Lock a file unless another program holds a lock that excludes this one; return whether."""
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _launch() -> subprocess.Popen[bytes]:
    configured = json.loads(DAEMON_JSON.read_text()) if DAEMON_JSON.exists() else {}
    flags = [
        f"--{name}={str(value).lower()}"
        for name, value in json.loads(SHIPPED.read_text()).items()
        if name not in configured  # dockerd refuses duplicate settings
    ]
    if RELEASE:  # engines do not read what newer ones have written
        flags.append(f"--data-root={ROOT}/build/engines/{RELEASE}/data")
    LOG.parent.mkdir(mode=0o700, exist_ok=True)
    with LOG.open("ab") as log:
        return subprocess.Popen(
            ["dockerd", *flags],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C at the terminal is ours to handle
        )


def _started(pid: int) -> str:
    """Return the start time of a process in clock ticks; empty if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return stat.rpartition(")")[2].split()[19]


def _tail() -> str:
    lines = LOG.read_text(errors="replace").splitlines() if LOG.exists() else []
    return "\n".join(lines[-20:])
