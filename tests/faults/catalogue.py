"""The 48 faults that Tiltyard is built to survive, and why some have no test yet."""

from __future__ import annotations

from collections.abc import Mapping

FAULTS: Mapping[int, str] = {
    1: "SIGKILL of the agent while its sessions play",
    2: "SIGKILL of the agent at each step of a start",
    3: "SIGKILL of the agent at each step of a stop, a restart, a removal, and during an artifact",
    4: "SIGKILL of the agent again and again while a game crashes and is restarted",
    5: "SIGTERM of the agent, and a newer version on what an older one left",
    6: "the agent's records lost, damaged, or older than what runs",
    7: "SIGKILL of dockerd with live-restore, players connected",
    8: "SIGKILL of dockerd without live-restore",
    9: "dockerd hangs while a lifetime ends",
    10: "one container hangs the engine's calls",
    11: "a game dies with its containerd-shim, and the engine does not see it",
    12: "the engine's events are cut off, silent or lost",
    13: "something happens between the first list and the subscription to events",
    14: "the engine does what it is asked, and its answer is lost",
    15: "the engine answers that a name is taken, or that the image has vanished",
    16: "starts with one id at one time",
    17: "starts at one time for the last of a quota",
    18: "starts at one time for the last warm standby",
    19: "a process of the host has the port",
    20: "no port is left",
    21: "a port is used again at once, and the old player never stops sending",
    22: "connection tracking cannot be flushed",
    23: "the firewall is locked, broken, or flushed",
    24: "a lifetime ends while the agent is down",
    25: "a lifetime ends while the control plane is down",
    26: "the wall clock jumps by days and by years",
    27: "the machine sleeps",
    28: "lifetimes that are none, tiny, huge, or written oddly",
    29: "a game ignores SIGTERM",
    30: "a game forks without end, or leaves children behind",
    31: "a game floods its output: lines, bytes, one line without end",
    32: "logs are rotated while they are followed, by slow readers, too",
    33: "the disk of logs and artifacts is full",
    34: "the disk of the engine is full",
    35: "the disk of the agent's records is full or read-only",
    36: "SIGKILL of the control plane, or a power cut, while it writes",
    37: "the database server goes away in the middle of a commit",
    38: "SIGKILL of the control plane between a start and its commit",
    39: "a host is cut off and comes back after it was given up",
    40: "a slow network that loses packets",
    41: "a peer is gone without a word",
    42: "certificates expire or are replaced during calls",
    43: "pulls that fail, hang, crawl, lie, or fill the disk",
    44: "500 starts at once",
    45: "the host is rebooted",
    46: "somebody else on the host removes, restarts or renames containers",
    47: "thousands of starts and stops: what leaks would show",
    48: "the agent's event loop is blocked, or the agent is stopped",
}

NOT_YET: Mapping[int, str] = {
    37: "SQLite is the only store",
}
"""Why a fault has no test of its number."""
