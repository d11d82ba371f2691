"""Checks of Docker Engine. Pure."""

import re

from agent.docker.answers import ICC, NO_SECCOMP, OPEN_LISTENER, WANTED, open_listeners
from agent.docker.container_config import LOG_DRIVER
from agent.docker.dockerd import MAX_NOFILE
from agent.doctor.facts import DockerdFacts, EngineFacts, Unknown
from agent.doctor.findings import Finding, bad, ok, warn

_RESTART = "and restart Docker Engine once live-restore is on"
_RUNC = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:-rc\.?(\d+))?(.*)")
_FINAL = 1_000_000
"""In place of the number of a release candidate."""
_LEAKED_DESCRIPTOR = ((1, 1, 12, _FINAL),)
_MASKED_PATHS = ((1, 2, 8, _FINAL), (1, 3, 3, _FINAL), (1, 4, 0, 3))
_ESCAPES = {
    "CVE-2024-21626": _LEAKED_DESCRIPTOR,
    "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881": _MASKED_PATHS,
}
"""Container escapes, and the first fixed runc of each release line."""


def docker(engine: EngineFacts) -> Finding:
    """Report the version of Docker Engine."""
    version, kernel = engine.info.get("ServerVersion"), engine.info.get("KernelVersion")
    return ok("docker", f"{version}, API {engine.api}, kernel {kernel}")


def runc(engine: EngineFacts) -> Finding:
    """Compare runc with the releases that fixed container escapes."""
    found = _RUNC.match(engine.runc)
    if found is None:
        return warn(
            "runc",
            f"version {engine.runc!r} cannot be read",
            why=_ESCAPE,
            hint="compare `runc --version` with the releases at github.com/opencontainers/runc",
        )
    *numbers, candidate, rest = found.groups()
    version = (*map(int, numbers), int(candidate) if candidate else _FINAL)
    open_ways = [names for names, fixed in _ESCAPES.items() if not _has_fix(version, fixed)]
    if not open_ways:
        return ok("runc", engine.runc)
    text = f"{engine.runc}, which upstream has {', '.join(open_ways)}"
    if rest:
        return warn(
            "runc",
            f"{text}; this build's maker may have fixed them",
            why=_ESCAPE,
            hint="look for their numbers in `apt changelog runc`; upgrade runc, and enable "
            "userns-remap",
        )
    return bad("runc", text, why=_ESCAPE, hint="upgrade runc, and enable userns-remap")


_ESCAPE = "a session of a malicious image can become root on this host"


def live_restore(engine: EngineFacts) -> Finding:
    """Sessions must survive a restart of the daemon."""
    if engine.info.get("LiveRestoreEnabled"):
        return ok("live-restore", "on")
    return bad("live-restore", "off", **WANTED["LiveRestoreEnabled"]._asdict())


def icc(engine: EngineFacts) -> Finding:
    """Sessions must not reach each other, preferably on the default bridge."""
    if engine.kept_apart:
        return ok("icc", "off: sessions cannot reach each other on the default bridge")
    return warn("icc", "on", **ICC._asdict())


def userland_proxy(dockerd: DockerdFacts) -> Finding:
    """A proxy process per port is not needed."""
    if str(dockerd.settings.get("userland-proxy", True)).lower() == "false":
        return ok("userland-proxy", "off")
    return warn(
        "userland-proxy",
        "on",
        why="each port of a session runs two processes of 3.4 MB each",
        hint=f'set "userland-proxy": false in /etc/docker/daemon.json {_RESTART}',
    )


def userns_remap(engine: EngineFacts) -> Finding:
    """Root in a container should be unprivileged outside of it."""
    options = _security(engine)
    if "userns" in options or "rootless" in options:
        return ok("userns-remap", "on")
    return warn(
        "userns-remap",
        "off",
        why="root in a container is root on the host, limited by capabilities and seccomp",
        hint='drain the host, set "userns-remap": "default" in /etc/docker/daemon.json and '
        "restart Docker Engine; images are pulled again",
    )


def log_driver(engine: EngineFacts) -> Finding:
    """Containers need a specific log driver."""
    drivers = (engine.info.get("Plugins") or {}).get("Log") or ()
    if LOG_DRIVER in drivers:
        return ok("log-driver", f"{LOG_DRIVER} is there")
    return bad(
        "log-driver",
        f"{LOG_DRIVER} is missing; available: {', '.join(drivers)}",
        why="no session can be started without it",
        hint="use an official build of Docker Engine 20.10 or later",
    )


def seccomp(engine: EngineFacts) -> Finding:
    """System calls must be filtered."""
    profile = _security(engine).get("seccomp")
    if profile is None:
        return bad("seccomp", "there is none", **NO_SECCOMP._asdict())
    if profile == "unconfined":
        return bad(
            "seccomp",
            "the daemon's default profile is `unconfined`",
            why="containers may make any system call",
            hint=f"remove seccomp-profile from /etc/docker/daemon.json {_RESTART}",
        )
    return ok("seccomp", f"profile {profile or 'default'}")


def apparmor(engine: EngineFacts, *, in_kernel: bool) -> Finding:
    """A mandatory access control system should confine containers."""
    options = _security(engine)
    fence = next((name for name in ("apparmor", "selinux") if name in options), "")
    if fence:
        return ok("apparmor", f"{fence} is on")
    return warn(
        "apparmor",
        "the kernel has AppArmor, Docker Engine does not use it" if in_kernel else "none",
        why="nothing else confines a process that escapes from its container",
        hint="`apt install apparmor` and restart Docker Engine"
        if in_kernel
        else "use a kernel with AppArmor or SELinux",
    )


def cgroups(engine: EngineFacts) -> Finding:
    """Limits need control groups."""
    kind = f"version {engine.info.get('CgroupVersion')}, driver {engine.info.get('CgroupDriver')}"
    lacks = [
        lack
        for key, lack in WANTED.items()
        if key != "LiveRestoreEnabled" and not engine.info.get(key)
    ]
    if not lacks:
        return ok("cgroups", kind)
    finding = warn if lacks == [WANTED["SwapLimit"]] else bad
    return finding(
        "cgroups",
        kind,
        why="; ".join(lack.why for lack in lacks),
        hint="; ".join(lack.hint for lack in lacks),
    )


def docker_tcp(engine: EngineFacts, dockerd: DockerdFacts | Unknown) -> Finding:
    """The daemon must not serve a port to anyone (CIS Docker Benchmark 2.7)."""
    settings = {} if isinstance(dockerd, Unknown) else dockerd.settings
    addresses = open_listeners(engine.info, settings)
    if not addresses:
        return ok("docker-tcp", "no TCP port without client certificates")
    return bad(
        "docker-tcp", f"it serves anyone on {', '.join(addresses)}", **OPEN_LISTENER._asdict()
    )


def container_files(dockerd: DockerdFacts) -> Finding:
    """The open-file limit of containers is bounded by that of the daemon."""
    if dockerd.nofile is None or dockerd.nofile >= MAX_NOFILE:
        return ok("container-files", str(dockerd.nofile or "unknown to this user"))
    return warn(
        "container-files",
        f"a container can open {dockerd.nofile} files",
        why=f"games may need more; sessions get {MAX_NOFILE} if the daemon allows it",
        hint="set LimitNOFILE=1048576 with `systemctl edit docker`, and restart it once "
        "live-restore is on",
    )


def _has_fix(version: tuple[int, ...], fixed: tuple[tuple[int, ...], ...]) -> bool:
    """Return whether a release is not older than the fixed one of its line, or a later line."""
    line = next((each for each in fixed if each[:2] == version[:2]), None)
    return version >= (line or max(fixed))


def _security(engine: EngineFacts) -> dict[str, str]:
    """Security options by name, with the profile if one is named: `name=seccomp,profile=x`."""
    found = {}
    for option in engine.info.get("SecurityOptions") or ():
        fields = dict(field.partition("=")[::2] for field in option.split(","))
        found[fields.get("name", option)] = fields.get("profile", "")
    return found
