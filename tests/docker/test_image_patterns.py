"""What scripts of published images do as root, and the least capabilities for each.

docs/porting.md has the table. The programs are those of this machine.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.docker.programs import SHELL, programs
from tests.docker.stack import Stack
from tests.support.agent.tars import Entry, folder
from tests.support.harness import Registry
from tests.support.pushed_image import push_image
from tiltyard.contract import Capability

pytestmark = pytest.mark.thorough

CHOWN = "CHOWN"
DAC_OVERRIDE = "DAC_OVERRIDE"
FOWNER = "FOWNER"
SETUID = "SETUID"
SETGID = "SETGID"
SYS_CHROOT = "SYS_CHROOT"
AUDIT_WRITE = "AUDIT_WRITE"
TOOLS = (
    SHELL,
    "/bin/chown",
    "/bin/cat",
    "/usr/bin/id",
    "/usr/sbin/gosu",
    "/usr/bin/setpriv",
    "/usr/sbin/runuser",
    "/usr/bin/su",
    "/usr/bin/sudo",
    "/usr/bin/s6-setuidgid",
    "/usr/bin/s6-envuidgid",
    "/usr/bin/s6-applyuidgid",
    "/usr/bin/chpst",
    "/usr/bin/setuidgid",
    "/usr/sbin/start-stop-daemon",
    "/usr/sbin/chroot",
    "/usr/sbin/usermod",
    "/usr/sbin/groupmod",
    "/usr/sbin/useradd",
)
PLUGINS = ("/lib/*/security/*.so", "/usr/libexec/sudo/*.so*")
USERS = {
    "etc/passwd": b"root:x:0:0::/root:/bin/sh\ngame:x:1000:1000::/home/game:/bin/dash\n",
    "etc/group": b"root:x:0:\nshadow:x:42:\ngame:x:1000:\n",
    "etc/shadow": b"root:*:19000:0:99999:7:::\ngame:*:19000:0:99999:7:::\n",
    "etc/gshadow": b"root:*::\ngame:!::\n",
    "etc/nsswitch.conf": b"passwd: files\ngroup: files\nshadow: files\n",
    "etc/sudoers": b"root ALL=(ALL:ALL) NOPASSWD: ALL\n",
}
MODES = {"etc/shadow": 0o640, "etc/gshadow": 0o640, "etc/sudoers": 0o440}
IS_GAME = '"$(id -u)" = 1000'


@dataclass(frozen=True)
class Pattern:
    """A command of a script, which must end with 0, and the capabilities that it needs."""

    command: str
    needs: tuple[str, ...] = ()


DROP = f"/bin/dash -c '[ {IS_GAME} ]'"
PATTERNS = {
    "chown": Pattern("chown -R game: /data", (CHOWN,)),
    "chown to the present owner": Pattern("chown -R root: /data"),
    "write in another's folder": Pattern("echo > /theirs/new", (DAC_OVERRIDE,)),
    "read another's file": Pattern("cat /theirs/secret", (DAC_OVERRIDE,)),
    "gosu": Pattern(f"exec gosu game {DROP}", (SETGID, SETUID)),
    "setpriv": Pattern(
        f"exec setpriv --reuid=1000 --regid=1000 --init-groups {DROP}", (SETGID, SETUID)
    ),
    "runuser": Pattern(f"exec runuser -u game -- {DROP}", (SETGID, SETUID)),
    "su": Pattern(f"exec su game -s {DROP}", (SETGID, SETUID)),
    "sudo": Pattern(f"exec sudo -u game {DROP}", (AUDIT_WRITE, SETGID, SETUID)),
    "s6-setuidgid": Pattern(f"exec s6-setuidgid game {DROP}", (SETGID, SETUID)),
    "chpst": Pattern(f"exec chpst -u game {DROP}", (SETGID, SETUID)),
    "setuidgid": Pattern(f"exec setuidgid game {DROP}", (SETGID, SETUID)),
    "start-stop-daemon": Pattern(
        f"exec start-stop-daemon --start --chuid game --exec /bin/dash -- -c '[ {IS_GAME} ]'",
        (SETGID, SETUID),
    ),
    "chroot": Pattern(f"exec chroot --userspec=game:game / {DROP}", (SETGID, SETUID, SYS_CHROOT)),
    "usermod -u": Pattern("usermod -u 1234 game", (CHOWN,)),
    "groupmod -g": Pattern("groupmod -g 1234 game"),
    "useradd -m": Pattern("useradd -m other", (CHOWN, FOWNER)),
}


def image() -> Iterator[Entry]:
    plugins = [str(path) for pattern in PLUGINS for path in Path("/").glob(pattern[1:])]
    entries = [*programs(*TOOLS, *plugins), folder(b"etc"), folder(b"root")]
    entries += [folder(b"etc/pam.d"), folder(b"etc/security")]
    settings = [
        Path("/etc/login.defs"),
        *sorted(Path("/etc/pam.d").iterdir()),
        *sorted(Path("/etc/security").glob("*.conf")),
    ]
    entries += [Entry(str(path)[1:].encode(), content=path.read_bytes()) for path in settings]
    entries += [
        Entry(
            name.encode(),
            content=content,
            mode=MODES.get(name, 0o644),
            gid=42 if "shadow" in name else 0,
        )
        for name, content in USERS.items()
    ]
    entries += [
        folder(b"data"),
        folder(b"tmp"),
        folder(b"home"),
        replace(folder(b"home/game"), uid=1000, gid=1000),
        replace(folder(b"theirs"), uid=1000, gid=1000),
        Entry(b"theirs/secret", content=b"secret", mode=0o600, uid=1000, gid=1000),
    ]
    yield from entries


class Trials:
    """Runs commands with capabilities, each in a session of its own."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    def prepare(self, sets: Sequence[tuple[str, ...]]) -> None:
        """Make an application for each set of capabilities."""
        allowed = {"capabilities": list(Capability)}
        operator = self._stack.control_plane.operator
        operator.put("/operator/node-pool/default", allowed).expect(204)
        for capabilities in sets:
            name = application_of(capabilities)
            self._stack.make_game(
                name, repository="patterns", ports=[], capabilities=list(capabilities)
            )

    def report(self, pattern: Pattern, capabilities: tuple[str, ...]) -> tuple[int, str]:
        """The exit code of a command, and what it said."""
        script = f"set -e; {pattern.command}"
        made = self._stack.start(image=application_of(capabilities), args=[script])
        report = self._stack.report(made["id"])
        return int(report["exitCode"]), str(report["log"])


def application_of(capabilities: tuple[str, ...]) -> str:
    return "-".join(("with", *capabilities)) if capabilities else "without"


def less(needed: tuple[str, ...]) -> list[tuple[str, ...]]:
    """What is left of some capabilities without each one of them."""
    return [tuple(each for each in needed if each != left_out) for left_out in needed]


@pytest.mark.timeout(600)
def test_each_pattern_needs_its_capabilities_and_no_others(
    stack: Stack, registry: Registry
) -> None:
    config = {
        "Entrypoint": [SHELL, "-c"],
        "User": "",
        "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
    }
    push_image(registry.address, "patterns", entries=list(image()), config=config)
    trials = Trials(stack)
    wanted = {(name, pattern.needs): True for name, pattern in PATTERNS.items()}
    for name, pattern in PATTERNS.items():
        wanted |= {(name, fewer): False for fewer in less(pattern.needs)}
    trials.prepare(sorted({capabilities for _, capabilities in wanted}))
    with ThreadPoolExecutor(4) as callers:
        reports = callers.map(lambda one: trials.report(PATTERNS[one[0]], one[1]), wanted)
        found = dict(zip(wanted, reports, strict=True))
    for (name, capabilities), (exit_code, said) in found.items():
        print(f"{name:30}{', '.join(capabilities):30}{exit_code:4} {said!r:.150}")  # noqa: T201
    wrong = {one: found[one] for one, works in wanted.items() if has_worked(*found[one]) != works}
    assert wrong == {}


def has_worked(exit_code: int, said: str) -> bool:
    """Return whether a command has ended well, and not gone on in spite of a refusal."""
    return exit_code == 0 and "not permitted" not in said
