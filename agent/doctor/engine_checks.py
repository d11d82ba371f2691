"""Checks of Docker Engine. Pure."""

import re
from collections.abc import Collection

from agent.docker.answers import ICC, NO_SECCOMP, OPEN_LISTENER, WANTED, open_listeners
from agent.docker.dockerd import MAX_NOFILE
from agent.doctor.facts import DockerdFacts, EngineFacts, Finding, Unknown, bad, ok, warn
from tiltyard.contract import Capability

_RESTART = "and restart Docker Engine once live-restore is on"
_RUNC = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:-rc\.?(\d+))?(.*)")
_FINAL = 1_000_000  # Sorts after every release candidate number
_ESCAPES = {
    "CVE-2024-21626": ((1, 1, 12, _FINAL),),
    "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881": (
        (1, 2, 8, _FINAL),
        (1, 3, 3, _FINAL),
        (1, 4, 0, 3),
    ),
}
"""Container escapes, and the first fixed runc of each release line."""
_OLDEST_MAINTAINED = (1, 4)
"""The release line of runc that upstream maintains the longest from November 2026 on. Its policy:
two releases a year, in April and October; a line gets fixes until the second one after its own."""


def docker(engine: EngineFacts) -> Finding:
    """Report the version of Docker Engine."""
    version = engine.info.get("ServerVersion")
    kernel = engine.info.get("KernelVersion")
    return ok("docker", f"{version}, API {engine.api}, kernel {kernel}")


def runc(engine: EngineFacts) -> Finding:
    """Runc must contain the fixes of known container escapes."""
    found = _RUNC.match(engine.runc)
    if found is None:
        hint = "compare `runc --version` with the releases at github.com/opencontainers/runc"
        return warn("runc", f"version {engine.runc!r} cannot be read", hint)
    *numbers, candidate, rest = found.groups()
    version = (*map(int, numbers), int(candidate) if candidate else _FINAL)
    open_ways = [names for names, fixed in _ESCAPES.items() if not _has_fix(version, fixed)]
    if not open_ways and not rest and version[:2] < _OLDEST_MAINTAINED:
        oldest = ".".join(map(str, _OLDEST_MAINTAINED))
        text = f"{engine.runc}, which gets no more fixes from upstream"
        return warn("runc", text, f"upgrade runc to {oldest} or later")
    if not open_ways:
        return ok("runc", engine.runc)
    text = f"{engine.runc}, which upstream has {', '.join(open_ways)}"
    hint = "upgrade runc"
    if rest:
        hint = "look for their numbers in `apt changelog runc`; this build may have fixed them"
        return warn("runc", text, hint)
    return bad("runc", text, hint)


def live_restore(engine: EngineFacts) -> Finding:
    """Sessions must survive a restart of the daemon."""
    if engine.info.get("LiveRestoreEnabled"):
        return ok("live-restore", "on")
    return bad("live-restore", "off", WANTED["LiveRestoreEnabled"].hint)


def icc(engine: EngineFacts) -> Finding:
    """Sessions should not reach each other on the default bridge."""
    if engine.kept_apart:
        return ok("icc", "off: sessions cannot reach each other on the default bridge")
    return warn("icc", "on", ICC.hint)


def userland_proxy(dockerd: DockerdFacts) -> Finding:
    """The userland proxy, a process per port, should be off."""
    if str(dockerd.settings.get("userland-proxy", True)).lower() == "false":
        return ok("userland-proxy", "off")
    hint = f'set "userland-proxy": false in /etc/docker/daemon.json {_RESTART}'
    return warn("userland-proxy", "on", hint)


def userns_remap(engine: EngineFacts, capabilities: Collection[Capability]) -> Finding:
    """Root in a container should be unprivileged outside of it.

    All the more where the host's policy allows sessions to have `capabilities`.
    """
    if remaps(engine):
        return ok("userns-remap", "on")
    hint = 'drain the host, set "userns-remap": "default" in /etc/docker/daemon.json, and restart'
    found = "off"
    if capabilities:
        found = f"off, and sessions may have {', '.join(sorted(capabilities))} as root of the host"
    return warn("userns-remap", found, f"{hint} Docker Engine; images are pulled again")


def remaps(engine: EngineFacts) -> bool:
    """Return whether the users of containers are others outside of them."""
    return not {"userns", "rootless"}.isdisjoint(_security(engine))


def seccomp(engine: EngineFacts) -> Finding:
    """System calls must be filtered."""
    profile = _security(engine).get("seccomp")
    if profile is None:
        return bad("seccomp", "there is none", NO_SECCOMP.hint)
    if profile == "unconfined":
        hint = f"remove seccomp-profile from /etc/docker/daemon.json {_RESTART}"
        return bad("seccomp", "the daemon's default profile is `unconfined`", hint)
    return ok("seccomp", f"profile {profile or 'default'}")


def apparmor(engine: EngineFacts) -> Finding:
    """A mandatory access control system should confine containers."""
    options = _security(engine)
    if fence := next((name for name in ("apparmor", "selinux") if name in options), ""):
        return ok("apparmor", f"{fence} is on")
    hint = "`apt install apparmor`, with a kernel that has it, and restart Docker Engine"
    return warn("apparmor", "Docker Engine uses neither AppArmor nor SELinux", hint)


def cgroups(engine: EngineFacts) -> Finding:
    """Resource limits need control groups."""
    kind = f"version {engine.info.get('CgroupVersion')}, driver {engine.info.get('CgroupDriver')}"
    missing = [
        feature
        for key, feature in WANTED.items()
        if key != "LiveRestoreEnabled" and not engine.info.get(key)
    ]
    if not missing:
        return ok("cgroups", kind)
    finding = warn if missing == [WANTED["SwapLimit"]] else bad
    return finding("cgroups", kind, "; ".join(map(str, missing)))


def docker_tcp(engine: EngineFacts, dockerd: DockerdFacts | Unknown) -> Finding:
    """The daemon must not serve a port to anyone (CIS Docker Benchmark 2.7)."""
    settings = {} if isinstance(dockerd, Unknown) else dockerd.settings
    addresses = open_listeners(engine.info, settings)
    if not addresses:
        return ok("docker-tcp", "no TCP port without client certificates")
    return bad("docker-tcp", f"it serves anyone on {', '.join(addresses)}", OPEN_LISTENER.hint)


def container_files(dockerd: DockerdFacts) -> Finding:
    """The open-file limit of containers is bounded by that of the daemon."""
    if dockerd.nofile is None or dockerd.nofile >= MAX_NOFILE:
        return ok("container-files", str(dockerd.nofile or "unknown to this user"))
    hint = f"set LimitNOFILE=1048576 with `systemctl edit docker` {_RESTART}"
    return warn("container-files", f"a container can open {dockerd.nofile} files", hint)


def _has_fix(version: tuple[int, ...], fixed: tuple[tuple[int, ...], ...]) -> bool:
    """Return whether a release is at least the fixed one of its line, or of a later line."""
    line = next((each for each in fixed if each[:2] == version[:2]), None)
    return version >= (line or max(fixed))


def _security(engine: EngineFacts) -> dict[str, str]:
    """Parse security options, `name=seccomp,profile=x`, into profiles by name."""
    found = {}
    for option in engine.info.get("SecurityOptions") or ():
        fields = dict(field.partition("=")[::2] for field in option.split(","))
        found[fields.get("name", option)] = fields.get("profile", "")
    return found
