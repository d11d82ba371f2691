"""The values that sessions need of kernel settings that all containers of a host share.

Per-user counts of the kernel are shared by all sessions, since all their programs are processes of
the same users.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KernelNeed:
    """How much of a setting sessions need: `per_session` each, and `reserve` for the host itself.

    `lack` says what fails when it is used up. `is_remapped`: only with userns-remap of the engine.
    """

    setting: str
    per_session: int
    reserve: int
    lack: str
    is_remapped: bool = False

    def least(self, sessions: int) -> int:
        """Return the least value for this number of sessions."""
        return self.reserve + self.per_session * sessions

    def sessions(self, value: int) -> int:
        """Return the number of sessions for which a value suffices."""
        return max(0, value - self.reserve) // self.per_session


CONNTRACK = KernelNeed(
    "net.netfilter.nf_conntrack_max",
    per_session=64,
    reserve=1536,
    lack="the packets of new players are dropped",
)
"""Each player has an entry per port of the session, until minutes after leaving."""

PENDING_SIGNALS = KernelNeed(
    "LimitSIGPENDING of docker.service",
    per_session=16,
    reserve=1024,
    lack="games cannot create timers",
)
"""RLIMIT_SIGPENDING, which bounds the timers and queued signals of a user."""

INOTIFY_INSTANCES = KernelNeed(
    "fs.inotify.max_user_instances",
    per_session=1,
    reserve=64,
    lack="games cannot watch files, and logs cannot be followed",
)
"""A game that watches files uses one, and so does each reader that follows a log."""

KEYS = KernelNeed(
    "kernel.keys.maxkeys",
    per_session=1,
    reserve=100,
    lack="no container can be started",
    is_remapped=True,
)
"""runc makes a keyring for each container; the limits of the host's root are higher."""

NEEDS = (
    # A session with a player has two entries: one of the host, one of the container.
    KernelNeed(
        "net.ipv4.neigh.default.gc_thresh3",
        per_session=2,
        reserve=512,
        lack="the packets of players are lost",
    ),
    INOTIFY_INSTANCES,
    # The program of a session, the engine's shim and its relays of ports.
    KernelNeed(
        "kernel.pid_max",
        per_session=64,
        reserve=4096,
        lack="neither sessions nor the host can start processes",
    ),
    KernelNeed(
        "kernel.threads-max",
        per_session=64,
        reserve=4096,
        lack="neither sessions nor the host can start threads",
    ),
    # Games send to several players in the same moment.
    KernelNeed(
        "net.core.netdev_max_backlog",
        per_session=4,
        reserve=0,
        lack="packets are dropped when many games send at once",
    ),
    KEYS,
    KernelNeed(
        "kernel.keys.maxbytes",
        per_session=80,
        reserve=4000,
        lack="no container can be started",
        is_remapped=True,
    ),
)
