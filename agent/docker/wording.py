"""The wording of Docker Engine, for what no status, code or field says. Pure.

Only this table decides by text, which is unknown if it is in no row. Each row lists the tested
engines whose texts it recognises.
"""

import re
from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

V20 = "20.10.24"
V26 = "26.1.5"
V28 = "28.5.2"
_ALL = (V20, V26, V28)

Parts = Mapping[str, str]


class Meaning(Enum):
    """Meanings of the texts."""

    DISK_FULL = auto()
    NO_SPACE = auto()  # Of what, the text does not say
    PORT_TAKEN = auto()
    FIREWALL = auto()
    CANNOT_RUN = auto()
    IN_THE_WAY = auto()
    NO_PATH = auto()
    REGISTRY_REFUSES = auto()
    IMAGE_NOT_FOUND = auto()
    REGISTRY_LATE = auto()
    REGISTRY_FAILS = auto()
    EXIT_CODE = auto()
    OPEN_LISTENER = auto()


class Wording(NamedTuple):
    """A row. `where`: the call whose error it is, "" for any, or the field that has the text."""

    meaning: Meaning
    where: str
    engines: tuple[str, ...]
    pattern: re.Pattern[str]


def find(call: str, text: str) -> tuple[Meaning, Parts] | None:
    """Return the meaning of a call's error, and its parts, by the first row; None if unknown."""
    for row in TABLE:
        if row.where in {"", call} and (match := row.pattern.search(text)):
            return row.meaning, match.groupdict("")
    return None


def parts_of(meaning: Meaning, text: str) -> Parts | None:
    """The parts of a text with this meaning; None if it does not have it."""
    matches = (row.pattern.search(text) for row in TABLE if row.meaning is meaning)
    return next((match.groupdict("") for match in matches if match), None)


def _row(meaning: Meaning, where: str, pattern: str, *engines: str) -> Wording:
    return Wording(meaning, where, engines or _ALL, re.compile(pattern, re.IGNORECASE))


_NO_SPACE = "no space left on device|disk quota exceeded"
"""ENOSPC and EDQUOT: said of disks, but also of keys, inotify, cgroups, IPC and mounts."""

_WRITES = (
    "close|copy|copy_file_range|create|fallocate|fsync|link|lsetxattr|mkdir|mkdirat|mknod|open|"
    "openat|pwrite|rename|symlink|sync|truncate|write"
)
_ON_DISK = r"(?!/dev/|/proc/|/sys/)/"

TABLE = (
    _row(Meaning.DISK_FULL, "", rf"\b(?:{_WRITES}) {_ON_DISK}[^:]*: (?:{_NO_SPACE})"),
    _row(Meaning.NO_SPACE, "", _NO_SPACE),
    _row(
        Meaning.PORT_TAKEN,
        "start",
        r"Bind for \S*:(?P<port>\d+) failed: port is already allocated",
    ),
    _row(
        Meaning.PORT_TAKEN,
        "start",
        r"listen (?P<protocol>tcp|udp)\d? \S*:(?P<port>\d+): bind: address already in use",
        V20,
        V26,
    ),
    _row(
        Meaning.PORT_TAKEN,
        "start",
        r"host port (?:for )?\S*?:(?P<port>\d+)(?::\S+)?/(?P<protocol>tcp|udp): address already",
        V28,
    ),
    _row(Meaning.FIREWALL, "start", "iptables failed|xtables lock"),
    _row(
        Meaning.CANNOT_RUN,
        "start",
        "(?P<cause>unable to find (?:user|group) [^:]*|no matching entries in (?:passwd|group))",
    ),
    _row(
        Meaning.CANNOT_RUN,
        "start",
        'exec: "/run/tiltyard-init": stat (?P<cause>/run/tiltyard-init: permission denied)',
    ),
    _row(
        Meaning.IN_THE_WAY,
        "start",
        'error mounting "[^"]*" to rootfs at "(?P<path>/run/tiltyard(?:-init)?)": .*'
        "not a directory",
    ),
    _row(
        Meaning.NO_PATH,
        "archive",
        ": (?:no such file or directory|not a directory|file name too long)$",
    ),
    _row(Meaning.NO_PATH, "archive", "^evalSymlinksInScope: too many links in "),
    _row(Meaning.NO_PATH, "archive", ": too many levels of symbolic links$", V26, V28),
    # Pulls: the first match counts, also among the rows of other meanings.
    _row(
        Meaning.REGISTRY_FAILS,
        "pull",
        "toomanyrequests|error parsing http 429|429 too many requests",
    ),
    _row(
        Meaning.REGISTRY_REFUSES,
        "pull",
        "unauthorized|authentication required|no basic auth credentials|access denied|"
        "access to the resource is denied|^denied$|denied: |incorrect username or password|"
        "error parsing http 40[13]",
    ),
    _row(
        Meaning.IMAGE_NOT_FOUND,
        "pull",
        "manifest unknown|name unknown|repository name not known|blob unknown|unknown blob|"
        "not found|error parsing http 404",
    ),
    _row(Meaning.CANNOT_RUN, "pull", "no matching manifest for"),
    _row(Meaning.REGISTRY_LATE, "pull", "timeout|timed out|deadline exceeded"),
    _row(
        Meaning.REGISTRY_FAILS,
        "pull",
        "connection refused|connection reset|no such host|no route to host|"
        "network is unreachable|server misbehaving|unexpected eof|: eof|x509:|tls:|"
        "http response to https client|digest verification failed|verification failed for digest|"
        "unsupported manifest|invalid character|unexpected end of json input|"
        "received unexpected http status|unknown: |error parsing http|internal server error|"
        "bad gateway|service unavailable",
    ),
    _row(Meaning.EXIT_CODE, "status in a list", r"^Exited \((?P<code>\d+)\)"),
    # Its beginning differs between releases.
    _row(Meaning.OPEN_LISTENER, "warning in info", r"\bAPI is accessible on (?P<address>\S+)"),
)
