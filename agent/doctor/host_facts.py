"""Reads facts from the kernel. Blocks; raises OSError, or ValueError for unexpected text."""

import contextlib
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent.docker.dockerd import daemon_pid, daemon_settings, grantable_nofile
from agent.doctor.facts import (
    DiskFacts,
    DockerdFacts,
    FileFacts,
    HostPort,
    KernelFacts,
    ProcessFacts,
)
from agent.domain.host.kernel_needs import NEEDS
from agent.init.binary import NoInitError, init_program
from agent.kernel.processes import resource_limit
from agent.state.init_programs import installed
from tiltyard.contract import Protocol
from tiltyard.runtime.kernel_clock import kernel_is_synchronised

_PROC = Path("/proc")
_SYSCTL = _PROC / "sys"
_DEVICES = Path("/sys/class/net")
_TABLES = (
    ("tcp", Protocol.TCP, "0A"),
    ("tcp6", Protocol.TCP, "0A"),
    ("udp", Protocol.UDP, ""),
    ("udp6", Protocol.UDP, ""),
)
"""Tables of /proc/net, with the state of sockets that own their port; "" is any."""
_CHECK_SECONDS = 5.0  # Timeout of a program that does nothing


def kernel_facts() -> KernelFacts:
    """Read kernel settings and tables of this network namespace."""
    low, high = _words("net/ipv4/ip_local_port_range")
    reserved = "".join(_words("net/ipv4/ip_local_reserved_ports"))
    return KernelFacts(
        local_ports=(int(low), int(high)),
        reserved_ports=frozenset(port_list(reserved)),
        bound_ports=frozenset(_bound_ports()),
        flows=_number("net/netfilter/nf_conntrack_count"),
        max_flows=_number("net/netfilter/nf_conntrack_max"),
        clock_synchronised=kernel_is_synchronised(),
        settings=dict(_settings()),
        route_mtu=min(_route_mtus(), default=None),
    )


def file_facts(path: Path) -> FileFacts | None:
    """Read mode and owner of a file, folder or socket; None if it does not exist."""
    try:
        path = path.resolve()
        found = path.stat()
    except FileNotFoundError:
        return None
    open_way = all(folder.stat().st_mode & stat.S_IXOTH for folder in path.parents)
    return FileFacts(found.st_mode, found.st_uid, open_way)


def disk_facts(path: Path) -> DiskFacts:
    """Read the file system of a folder, or of its nearest existing parent."""
    while not path.exists() and path != path.parent:
        path = path.parent
    found = os.statvfs(path)
    return DiskFacts(
        path=str(path),
        total_bytes=found.f_frsize * found.f_blocks,
        free_bytes=found.f_frsize * found.f_bavail,
        total_inodes=found.f_files,
        free_inodes=found.f_favail,
        read_only=bool(found.f_flag & os.ST_RDONLY),
    )


def init_problem(state_dir: Path) -> str | None:
    """Execute the first process of containers where the agent keeps it, as the agent's user.

    Returns why that is not possible, or "". None if the agent has not put it in place yet.
    """
    try:
        path = installed(state_dir, init_program().sha256)
        owner = path.stat()
    except NoInitError as error:
        return str(error)
    except FileNotFoundError:
        return None
    # Root must not execute what another user could have replaced.
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        user = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and no words of callers
            [path, "--check"],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_CHECK_SECONDS,
            **user,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot execute {path}: {getattr(error, 'strerror', None) or error}"
    if done.returncode != 0:
        return f"cannot execute {path}: it ended with {done.returncode}"
    return ""


def process_facts(pid: int) -> ProcessFacts:
    """Read the facts of a process from /proc."""
    folder = _PROC / str(pid)
    status = dict(
        line.split(":", 1) for line in (folder / "status").read_text(errors="replace").splitlines()
    )
    nofile, _ = resource_limit(pid, "Max open files")
    return ProcessFacts(
        uid=int(status["Uid"].split()[1]),
        capabilities=int(status["CapEff"], 16),
        nofile=nofile,
        network=_network_of(pid),
    )


def dockerd_facts(socket_path: Path) -> DockerdFacts:
    """Read the facts of the daemon behind a socket; ValueError if its process is unknown."""
    pid = daemon_pid(str(socket_path))
    if pid is None:
        raise ValueError("the process behind the socket is not dockerd, or not visible")
    return DockerdFacts(
        daemon_settings(pid), grantable_nofile(pid), _network_of(pid), _pending_signals(pid)
    )


def port_list(text: str) -> Iterator[int]:
    """Parse a kernel port list: `8080,20000-30000`."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _words(sysctl: str) -> list[str]:
    return (_SYSCTL / sysctl).read_text("ascii").split()


def _number(sysctl: str) -> int | None:
    try:
        return int(_words(sysctl)[0])
    except FileNotFoundError:
        return None


def _settings() -> Iterator[tuple[str, int]]:
    for need in NEEDS:
        value = _number(need.setting.replace(".", "/"))
        if value is not None:
            yield need.setting, value


def _route_mtus() -> Iterator[int]:
    """The MTUs of the devices with a default route over IPv4."""
    for line in (_PROC / "net/route").read_text("ascii").splitlines()[1:]:
        device, destination, *_ = line.split()
        if int(destination, 16) == 0:
            yield int((_DEVICES / device / "mtu").read_text("ascii"))


def _pending_signals(pid: int) -> int | None:
    try:
        soft, _ = resource_limit(pid, "Max pending signals")
    except OSError:
        return None
    return soft


def _bound_ports() -> Iterator[HostPort]:
    for name, protocol, wanted in _TABLES:
        with contextlib.suppress(FileNotFoundError):
            for line in (_PROC / "net" / name).read_text("ascii").splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                if state == (wanted or state):
                    yield protocol, int(local.rpartition(":")[2], 16)


def _network_of(pid: int) -> str | None:
    try:
        return str((_PROC / str(pid) / "ns" / "net").readlink())
    except OSError:
        return None
