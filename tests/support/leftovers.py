"""Deployments on the machine's engine that a killed run of tests has left.

Each part of a deployment has a temporary folder with a lock, which its run holds. The kernel
releases the lock at the end of the run's process, so a free lock means that the run is gone.
"""

import fcntl
import json
import shutil
import signal
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import closing, suppress
from glob import glob
from pathlib import Path
from typing import IO

import docker

from agent.domain.containers.engine import LABEL_AGENT
from tests.support.real_engine import ends, remove_traces, try_lock

AGENT_CONFIG = "agent.toml"
REGISTRY_CONFIG = "config.yml"
_LOCK = "tiltyard-run.lock"
_END_TIMEOUT = 30.0  # Seconds in which SIGKILL ends a process


def lock_folder(folder: Path) -> IO[str]:
    """Lock a new folder as long as the returned file is open."""
    new = folder / f"{_LOCK}.new"
    lock = new.open("a")
    fcntl.flock(lock, fcntl.LOCK_EX)
    new.rename(folder / _LOCK)  # so that others find it locked
    return lock


def end_leftovers(docker_socket: Path, temporary: Path | None = None) -> list[Path]:
    """End and remove the parts of runs that are gone; return their folders.

    They are searched in `temporary`, by default the folder of temporary files, and one level
    below. Parts of a run that goes on are left alone, as are the images of its registry.
    """
    root = temporary or Path(tempfile.gettempdir())
    ended = []
    for path in _locks(root):
        with suppress(FileNotFoundError, PermissionError), path.open() as lock:
            # It may have been removed since it was opened.
            if try_lock(lock, fcntl.LOCK_EX) and path.exists():
                _end(path.parent, docker_socket, root)
                ended.append(path.parent)
    return ended


def _locks(root: Path) -> list[Path]:
    """Return the locks of all parts; other programs' folders may be removed meanwhile."""
    # Path.glob fails when a folder is removed while it looks.
    patterns = (f"*/{_LOCK}", f"*/*/{_LOCK}")
    found = [name for each in patterns for name in glob(each, root_dir=root)]  # noqa: PTH207
    return sorted(root / name for name in found)


def _end(folder: Path, docker_socket: Path, root: Path) -> None:
    """End the processes, then remove what is left of a part of a run that is gone."""
    for pid in _processes(folder):
        with suppress(ProcessLookupError):
            if not ends(pid, signal.SIGKILL, _END_TIMEOUT):
                raise RuntimeError(f"process {pid} of {folder} does not end")
    if (folder / AGENT_CONFIG).exists():
        _remove_containers(folder, docker_socket)
    address = _registry_address(folder)
    others = {_registry_address(path.parent) for path in _locks(root) if path.parent != folder}
    if address and address not in others:
        remove_traces(docker_socket, address)
    shutil.rmtree(folder)


def _processes(folder: Path) -> Iterator[int]:
    """The processes that were given a path in this folder, whose name is used only once."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            if f"{folder}/".encode() in path.read_bytes():
                yield int(path.parent.name)


def _remove_containers(folder: Path, docker_socket: Path) -> None:
    """Remove the containers of an agent, with those that it kept prepared."""
    settings = tomllib.loads((folder / AGENT_CONFIG).read_text())
    identity = Path(settings["state_dir"]) / "agent_id"
    if not identity.exists():
        return  # it was killed before it had containers
    filters = {"label": f"{LABEL_AGENT}={identity.read_text().strip()}"}
    with closing(docker.DockerClient(f"unix://{docker_socket}", timeout=60)) as client:
        for container in client.api.containers(all=True, filters=filters):
            with suppress(docker.errors.NotFound):
                client.api.remove_container(container["Id"], force=True, v=True)


def _registry_address(folder: Path) -> str:
    """The address of the registry with this folder; empty for another part."""
    with suppress(FileNotFoundError):
        return str(json.loads((folder / REGISTRY_CONFIG).read_text())["http"]["addr"])
    return ""
