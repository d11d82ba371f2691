"""What the host alone tells about the Docker daemon: its process and the limits it runs under."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
from pathlib import Path

MAX_NOFILE = 65536
"""Open files of a container where the daemon can grant as many; no game needs more."""

_PROC = Path("/proc")
_DEFAULT_SOCKETS = frozenset({"/run/docker.sock", "/var/run/docker.sock"})
_PID_FILE = Path("/run/docker.pid")
_CONNECT_SECONDS = 2.0
"""A connection to a unix socket is made at once, or the daemon's queue is full."""
_CREDENTIALS = struct.Struct("3i")
_OPEN_FILES = re.compile(r"^Max open files +\S+ +(\S+)", re.MULTILINE)


def daemon_pid(socket_path: str) -> int | None:
    """The daemon behind a socket; None when it cannot be told.

    Under systemd the socket's peer may be systemd itself, which made it; the pid file speaks only
    for the daemon of the default socket.
    """
    pid = peer_pid(socket_path)
    if pid is not None and _is_daemon(pid):
        return pid
    if socket_path in _DEFAULT_SOCKETS:
        with contextlib.suppress(OSError, ValueError):
            pid = int(_PID_FILE.read_text("ascii"))
            return pid if _is_daemon(pid) else None
    return None


def peer_pid(socket_path: str) -> int | None:
    """The process that made a unix socket listen; None when nobody does, or we may not connect."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_CONNECT_SECONDS)
        connection.connect(socket_path)
        answer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return int(_CREDENTIALS.unpack(answer)[0])
    return None


def grantable_nofile(pid: int) -> int | None:
    """Open files that a daemon can grant a container, at most MAX_NOFILE; None when unreadable.

    A container that asks for more than the daemon's hard limit does not start (M26).
    """
    try:
        found = _OPEN_FILES.search((_PROC / str(pid) / "limits").read_text("ascii"))
    except OSError:
        return None
    if found is None:
        return None
    return MAX_NOFILE if found[1] == "unlimited" else min(MAX_NOFILE, int(found[1]))


def _is_daemon(pid: int) -> bool:
    try:
        return (_PROC / str(pid) / "comm").read_text(errors="replace").strip() == "dockerd"
    except OSError:
        return False
