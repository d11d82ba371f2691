"""The Docker daemon's process, settings and limits, as read from the host."""

import contextlib
import itertools
import json
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.kernel.processes import resource_limit

MAX_NOFILE = 65536  # Open files of a container, if the daemon can grant them

_PROC = Path("/proc")
_DEFAULT_SOCKETS = frozenset({"/run/docker.sock", "/var/run/docker.sock"})
_PID_FILE = Path("/run/docker.pid")
_CONNECT_SECONDS = 2.0  # A unix socket connects at once, unless the daemon's backlog is full
_CREDENTIALS = struct.Struct("3i")
_DAEMON_JSON = "/etc/docker/daemon.json"
_SHORT_WITH_VALUE = {"H": "host", "G": "group", "l": "log-level", "p": "pidfile", "s": "storage"}
"""Short options of dockerd with a value."""
_SHORT_FLAGS = "Dhv"  # They may precede one with a value: `-DH tcp://…`
_NOT_TCP = ("unix://", "fd://", "npipe://")


def daemon_pid(socket_path: str) -> int | None:
    """The daemon behind a socket; None if it cannot be determined.

    Under systemd the socket's peer may be systemd itself, so default sockets try the pid file.
    """
    found = [peer_pid(socket_path)]
    if socket_path in _DEFAULT_SOCKETS:
        with contextlib.suppress(OSError, ValueError):
            found.append(int(_PID_FILE.read_text("ascii")))
    return next((pid for pid in found if pid is not None and _is_daemon(pid)), None)


def peer_pid(socket_path: str) -> int | None:
    """The process listening on a unix socket; None if there is none or no permission."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_CONNECT_SECONDS)
        connection.connect(socket_path)
        answer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return int(_CREDENTIALS.unpack(answer)[0])
    return None


def grantable_nofile(pid: int) -> int | None:
    """Open files within a daemon's hard limit, at most MAX_NOFILE; None if unreadable."""
    try:
        _, hard = resource_limit(pid, "Max open files")
    except (OSError, ValueError):
        return None
    return min(MAX_NOFILE, hard)


def daemon_settings(pid: int) -> Mapping[str, Any]:
    """Read a daemon's settings from its daemon.json and command line; addresses are in `hosts`.

    Raises OSError, and TypeError or ValueError for a malformed file.
    """
    arguments = (_PROC / str(pid) / "cmdline").read_text(errors="replace").split("\0")[1:]
    flags = settings_of(arguments)
    file = Path(flags.get("config-file", _DAEMON_JSON))
    with contextlib.suppress(FileNotFoundError):
        return {**dict(json.loads(file.read_text("utf-8"))), **flags}
    return flags


def known_settings(pid: int | None) -> Mapping[str, Any]:
    """Settings of a daemon; empty if they cannot be read."""
    with contextlib.suppress(OSError, TypeError, ValueError):
        return {} if pid is None else daemon_settings(pid)
    return {}


def settings_of(arguments: Sequence[str]) -> dict[str, Any]:
    """Parse a command line: `--name=value`, `--name value`, `--name`, and `-H` as `hosts`."""
    found: dict[str, Any] = {}
    for argument, following in itertools.pairwise([*arguments, ""]):
        if argument.startswith("--"):
            name, value = _long_option(argument, following)
        elif argument.startswith("-"):
            name, value = _short_options(argument, following)
        else:
            continue  # The value of the option before it
        if name == "host":
            found.setdefault("hosts", []).append(value)
        elif name:
            found[name] = value
    return found


def _long_option(argument: str, following: str) -> tuple[str, str]:
    """Parse `--name=value`, or `--name` with the argument that follows."""
    name, equals, value = argument.removeprefix("--").partition("=")
    if equals:
        return name, value
    is_flag = not following or following.startswith("-")
    return name, "true" if is_flag else following


def _short_options(argument: str, following: str) -> tuple[str, str]:
    """Parse `-DHvalue`, `-H=value` or `-H` with the argument that follows; flags are ignored."""
    letters = argument.removeprefix("-").lstrip(_SHORT_FLAGS)
    name = _SHORT_WITH_VALUE.get(letters[:1], "")
    return name, letters[1:].removeprefix("=") or following


def open_hosts(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """TCP addresses that a daemon with these settings serves without client certificates.

    `tls` implies `tlsverify` unless that is false. An address without a scheme is TCP.
    """
    tls = _is_true(settings.get("tls", False)) or "tlsverify" in settings
    if _is_true(settings.get("tlsverify", tls)):
        return ()
    hosts = map(str, settings.get("hosts") or ())
    scheme = "https" if tls else "http"
    return tuple(
        f"{scheme}://{host.removeprefix('tcp://')}"
        for host in hosts
        if not host.startswith(_NOT_TCP)
    )


def _is_true(value: object) -> bool:
    return str(value).lower() in {"1", "t", "true"}


def _is_daemon(pid: int) -> bool:
    try:
        return (_PROC / str(pid) / "comm").read_text(errors="replace").strip() == "dockerd"
    except OSError:
        return False
