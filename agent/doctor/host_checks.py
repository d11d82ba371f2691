"""Checks of the host: disks, ports, kernel tables, clock, permissions. Pure."""

import stat
from collections.abc import Iterable

from agent.doctor.agent_checks import mode_of
from agent.doctor.facts import (
    DiskFacts,
    FileFacts,
    Finding,
    HostPort,
    KernelFacts,
    UserCount,
    bad,
    ok,
    warn,
)
from agent.domain.host.kernel_needs import CONNTRACK, NEEDS, PENDING_SIGNALS
from tiltyard.runtime.tables import size

FEW_PORTS = 5  # Ports listed in a finding

_LITTLE_ROOM = 0.10
_NO_ROOM = 0.03
"""Free fractions of a file system below which a check warns or fails."""
_ENOUGH_BYTES = 20 * 2**30  # Sufficient on disks of any size
_BUSY_TABLE = 0.70
_FULL_TABLE = 0.90
_BUSY_COUNT = 0.80
_SYSCTL_D = "/etc/sysctl.d/"


def is_world_accessible(socket: FileFacts) -> bool:
    """Return whether all users of the host can connect to a socket."""
    return bool(socket.mode & stat.S_IWOTH) and socket.open_way


def docker_sock(socket: FileFacts | None) -> Finding:
    """Docker's socket must be private to root and its group (CIS Docker Benchmark 3.15, 3.16)."""
    if socket is None:
        hint = "`systemctl start docker`, or correct `docker_socket`"
        return bad("docker-sock", "there is none", hint)
    if is_world_accessible(socket):
        hint = "chmod 0660 it, and remove SocketMode=0666 from docker.socket if present"
        return bad("docker-sock", f"{mode_of(socket)}: open to all users", hint)
    if socket.uid != 0:
        hint = "chown root:docker it, unless Docker Engine is rootless"
        return warn("docker-sock", mode_of(socket), hint)
    return ok("docker-sock", mode_of(socket))


def disk(check: str, disk: DiskFacts, hint: str) -> Finding:
    """A disk needs free space and inodes, and must be writable."""
    room = disk.free_bytes / max(1, disk.total_bytes)
    inodes = disk.free_inodes / disk.total_inodes if disk.total_inodes else 1.0
    text = f"{disk.path}: {size(disk.free_bytes)} free ({room:.0%}), {inodes:.0%} of inodes"
    if disk.read_only:
        fix = "look for disk errors in `dmesg`, fix them, and `mount -o remount,rw`"
        return bad(check, f"{disk.path} is mounted read-only", fix)
    if min(room, inodes) < _NO_ROOM:
        return bad(check, text, hint)
    if (room < _LITTLE_ROOM and disk.free_bytes < _ENOUGH_BYTES) or inodes < _LITTLE_ROOM:
        return warn(check, text, hint)
    return ok(check, text)


def state_dir(folder: FileFacts | None, *, uid: int | None) -> Finding:
    """The state directory must be private to the agent; `uid` is the agent's, if known."""
    if folder is None:
        hint = "start the agent, which creates it, or correct `state_dir`"
        return warn("state-dir", "it does not exist yet", hint)
    if not stat.S_ISDIR(folder.mode):
        hint = "move it away, or correct `state_dir`"
        return bad("state-dir", "it is not a directory", hint)
    if uid not in {None, folder.uid}:
        found = f"{mode_of(folder)}, and the agent is user {uid}"
        hint = "stop the agent, chown -R the directory to its user, start it"
        return bad("state-dir", found, hint)
    if folder.mode & (stat.S_IRWXG | stat.S_IRWXO):
        return bad("state-dir", mode_of(folder), "chmod 0700 it")
    return ok("state-dir", mode_of(folder))


def port_range(kernel: KernelFacts, ports: tuple[int, int]) -> Finding:
    """Session ports must not be in the kernel's ephemeral port range, unless reserved."""
    first, last = ports
    low, high = kernel.local_ports
    shared = range(max(first, low), min(last, high) + 1)
    loose = sum(1 for port in shared if port not in kernel.reserved_ports)
    if not loose:
        apart = "reserved" if shared else "apart"
        return ok("port-range", f"{first}-{last}, {apart} from outgoing connections' {low}-{high}")
    return warn(
        "port-range",
        f"{loose} ports of {first}-{last} are also those of outgoing connections, {low}-{high}",
        f"add {first}-{last} to net.ipv4.ip_local_reserved_ports in {_SYSCTL_D}",
    )


def ports_in_use(
    kernel: KernelFacts, ports: tuple[int, int], ours: frozenset[HostPort]
) -> Finding:
    """Other processes should not use session ports."""
    first, last = ports
    taken = sorted(
        (port, protocol.value)
        for protocol, port in kernel.bound_ports - ours
        if first <= port <= last
    )
    if not taken:
        return ok("ports-in-use", "no other process uses a port of the range")
    shown = ", ".join(f"{port}/{protocol}" for port, protocol in taken[:FEW_PORTS])
    more = f" and {len(taken) - FEW_PORTS} more" if len(taken) > FEW_PORTS else ""
    hint = "find them with `ss -lntup`, reconfigure them, or change `port_range`"
    return warn("ports-in-use", f"other processes use {shown}{more}", hint)


def conntrack(kernel: KernelFacts, sessions: int) -> Finding:
    """The connection tracking table needs free entries, and room for all sessions of the host."""
    if kernel.flows is None or not kernel.max_flows:
        return ok("conntrack", "connection tracking is not active yet")
    share = kernel.flows / kernel.max_flows
    text = f"{kernel.flows} of {kernel.max_flows} entries ({share:.0%})"
    hint = f"raise net.netfilter.nf_conntrack_max in {_SYSCTL_D}, to 262144 or more"
    if share >= _FULL_TABLE:
        return bad("conntrack", text, hint)
    if share >= _BUSY_TABLE or kernel.max_flows < CONNTRACK.least(sessions):
        return warn("conntrack", text, hint)
    return ok("conntrack", text)


def capacities(
    kernel: KernelFacts, sessions: int, *, is_remapped: bool, pending_signals: int | None
) -> Finding:
    """Check that limits of the kernel which containers share suffice for `sessions` sessions.

    `pending_signals`: the limit of the engine's process; None if unknown.
    """
    found = dict(kernel.settings)
    if pending_signals is not None:
        found[PENDING_SIGNALS.setting] = pending_signals
    scarce = [
        need
        for need in (*NEEDS, PENDING_SIGNALS)
        if found.get(need.setting, need.least(sessions)) < need.least(sessions)
        and (is_remapped or not need.is_remapped)
    ]
    if not scarce:
        return ok("capacities", f"the kernel's settings suffice for {sessions} sessions")
    texts = [
        f"{need.setting} = {found[need.setting]} suffices for {need.sessions(found[need.setting])}"
        f" of {sessions} sessions, beyond which {need.lack}"
        for need in scarce
    ]
    wanted = ", ".join(f"{need.setting} = {need.least(sessions)}" for need in scarce)
    return warn("capacities", "; ".join(texts), f"lower `max_sessions`, or set {wanted}")


def user_counts(counts: Iterable[UserCount]) -> Finding:
    """Check that no per-user limit of the kernel is used up: all accounts share the limits."""
    scarce = [count for count in counts if count.used >= _BUSY_COUNT * count.limit]
    if not scarce:
        text = f"no user has {_BUSY_COUNT:.0%} of what the kernel allows it for all sessions"
        return ok("user-counts", text)
    lacks = "; ".join(
        f"user {count.user} has {count.used} of {count.limit} by {count.need.setting}"
        + (f", {count.held} of them in session {count.session}" if count.held else "")
        + f"; when they are used up, {count.need.lack}"
        for count in scarce
    )
    settings = ", ".join(dict.fromkeys(count.need.setting for count in scarce))
    return warn("user-counts", lacks, f"stop a session that holds too many, or raise {settings}")


def mtu(bridge: int, kernel: KernelFacts) -> Finding:
    """The bridge of containers must not allow larger packets than the way to players."""
    if kernel.route_mtu is None or bridge <= kernel.route_mtu:
        return ok("mtu", f"{bridge} bytes on the engine's bridge")
    found = f"{bridge} bytes on the engine's bridge, {kernel.route_mtu} on the way to players"
    hint = f'set "mtu": {kernel.route_mtu} in /etc/docker/daemon.json'
    return warn("mtu", found, f"{hint}, drain the host, and restart Docker Engine")


def clock(kernel: KernelFacts) -> Finding:
    """The wall clock must be synchronised."""
    if kernel.clock_synchronised:
        return ok("clock", "synchronised")
    return warn("clock", "it is not synchronised", "`timedatectl set-ntp true`, or install chrony")
