"""Checks of the host: its disks, ports, tables and clock, and who may pass. Pure."""

import re
import stat

from agent.doctor.facts import DiskFacts, FileFacts, HostPort, KernelFacts
from agent.doctor.findings import Finding, bad, ok, warn
from tiltyard.runtime.tables import size

FEW_PORTS = 5
"""Ports that are named in a finding."""

_LITTLE_ROOM, _NO_ROOM = 0.10, 0.03
"""Parts of a file system that are free: below the first a warning, below the second a failure."""
_ENOUGH_BYTES = 20 * 2**30
"""So much free is no reason to warn, whatever part of a large disk it is."""
_BUSY_TABLE, _FULL_TABLE = 0.70, 0.90
_SMALL_TABLE = 65_536
"""Each player is an entry for each of a session's ports, and one that left stays for minutes."""
_BOOT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OTHERS_WRITE = stat.S_IWOTH
_OTHERS_ENTER = stat.S_IRWXG | stat.S_IRWXO


def is_world_accessible(socket: FileFacts) -> bool:
    """Tell whether everybody on the host may connect to a socket."""
    return bool(socket.mode & _OTHERS_WRITE) and socket.open_way


def docker_sock(socket: FileFacts | None) -> Finding:
    """Docker's socket is for root and its group (CIS Docker Benchmark 3.15, 3.16)."""
    if socket is None:
        return bad(
            "docker-sock",
            "there is none",
            why="the agent reaches Docker Engine by it and in no other way",
            hint="`systemctl start docker`, or set `docker_socket` to where it is",
        )
    mode = f"mode {stat.S_IMODE(socket.mode):04o}, owner {socket.uid}"
    if is_world_accessible(socket):
        return bad(
            "docker-sock",
            f"{mode}: open to everybody",
            why="every process of this host is root by it; the agent does not start so",
            hint="chmod 0660 it, and take SocketMode=0666 out of docker.socket if it is there",
        )
    if socket.uid != 0:
        return warn(
            "docker-sock",
            mode,
            why="its owner orders containers, which is as good as root",
            hint="chown root:docker it, unless Docker Engine is rootless",
        )
    return ok("docker-sock", mode)


def disk(check: str, disk: DiskFacts, *, why: str, hint: str) -> Finding:
    """A disk needs room, inodes, and to be writable."""
    room = disk.free_bytes / max(1, disk.total_bytes)
    inodes = disk.free_inodes / disk.total_inodes if disk.total_inodes else 1.0
    text = f"{disk.path}: {size(disk.free_bytes)} free ({room:.0%}), {inodes:.0%} of inodes"
    if disk.read_only:
        return bad(
            check,
            f"{disk.path} is mounted read-only",
            why=why,
            hint="look for disk errors in `dmesg`, fix them, and `mount -o remount,rw`",
        )
    if min(room, inodes) < _NO_ROOM:
        return bad(check, text, why=why, hint=hint)
    if (room < _LITTLE_ROOM and disk.free_bytes < _ENOUGH_BYTES) or inodes < _LITTLE_ROOM:
        return warn(check, text, why=why, hint=hint)
    return ok(check, text)


def state_dir(folder: FileFacts | None, *, uid: int | None) -> Finding:
    """The agent's folder is its own and nobody else's; `uid` of the agent where it is known."""
    if folder is None:
        return warn(
            "state-dir",
            "there is none yet",
            why="the agent has never run here, or with other settings",
            hint="start the agent, which makes it, or correct `state_dir`",
        )
    mode = f"mode {stat.S_IMODE(folder.mode):04o}, owner {folder.uid}"
    if not stat.S_ISDIR(folder.mode):
        return bad(
            "state-dir",
            "it is no folder",
            why="the agent cannot start",
            hint="move it away, or correct `state_dir`",
        )
    if uid not in {None, folder.uid}:
        return bad(
            "state-dir",
            f"{mode}, and the agent is user {uid}",
            why="the agent cannot keep what it must remember of sessions",
            hint="stop the agent, chown -R the folder to its user, start it",
        )
    if folder.mode & _OTHERS_ENTER:
        return bad(
            "state-dir",
            mode,
            why="logs and settings of callers' games can be read by others on the host",
            hint="chmod 0700 it",
        )
    return ok("state-dir", mode)


def port_range(kernel: KernelFacts, ports: tuple[int, int]) -> Finding:
    """The kernel must not give the ports of sessions to outgoing connections."""
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
        why="a port may be in use when a session needs it; requested ones are rejected then",
        hint=f"sysctl -w net.ipv4.ip_local_reserved_ports={first}-{last}, together with what it "
        "has already, and the same in /etc/sysctl.d/",
    )


def ports_in_use(
    kernel: KernelFacts, ports: tuple[int, int], ours: frozenset[HostPort]
) -> Finding:
    """Others on the host should not have ports of sessions."""
    first, last = ports
    taken = sorted(
        (port, protocol.value)
        for protocol, port in kernel.bound_ports - ours
        if first <= port <= last
    )
    if not taken:
        return ok("ports-in-use", "no other process has a port of the range")
    shown = ", ".join(f"{port}/{protocol}" for port, protocol in taken[:FEW_PORTS])
    more = f" and {len(taken) - FEW_PORTS} more" if len(taken) > FEW_PORTS else ""
    return warn(
        "ports-in-use",
        f"other processes have {shown}{more}",
        why="sessions get other ports; who asks for one of these is refused",
        hint="find them by `ss -lntup`, move them, or change `port_range`",
    )


def conntrack(kernel: KernelFacts) -> Finding:
    """The table of connections needs room for players."""
    if kernel.flows is None or not kernel.max_flows:
        return ok("conntrack", "the kernel tracks no connections yet")
    share = kernel.flows / kernel.max_flows
    text = f"{kernel.flows} of {kernel.max_flows} entries ({share:.0%})"
    why = "when the table is full, the kernel drops the packets of new players"
    hint = f"sysctl -w net.netfilter.nf_conntrack_max={max(262_144, 2 * kernel.max_flows)}"
    hint += ", and the same in /etc/sysctl.d/"
    if share >= _FULL_TABLE:
        return bad("conntrack", text, why=why, hint=hint)
    if share >= _BUSY_TABLE or kernel.max_flows < _SMALL_TABLE:
        return warn("conntrack", text, why=why, hint=hint)
    return ok("conntrack", text)


def clock(kernel: KernelFacts) -> Finding:
    """The wall clock must be set by somebody."""
    if kernel.clock_synchronised:
        return ok("clock", "synchronised")
    return warn(
        "clock",
        "nobody synchronises it",
        why="times that callers see are off, lifetimes after a reboot and certificates, too",
        hint="`timedatectl set-ntp true`, or install chrony",
    )


def boot_id(kernel: KernelFacts) -> Finding:
    """Boots must be told apart."""
    if _BOOT_ID.fullmatch(kernel.boot_id):
        return ok("boot-id", kernel.boot_id)
    return bad(
        "boot-id",
        f"the kernel answers {kernel.boot_id!r}",
        why="the agent cannot tell a reboot from a restart, which decides how long sessions live",
        hint="mount /proc whole: the agent reads /proc/sys/kernel/random/boot_id",
    )
