"""Facts about an engine that its calls need; they are read before the first call."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from agent.docker.answers import has_containerd_store
from agent.docker.dockerd import daemon_pid, grantable_nofile, known_settings
from agent.domain.errors import EngineError

OWN_NETWORK = "tiltyard0"
"""Network and interface of sessions if the default bridge does not isolate containers."""

MIN_API = "1.41"  # Docker Engine 20.10
_MAX_API = "1.47"  # Docker Engine 28.5, which also serves 1.41
_ICC = "com.docker.network.bridge.enable_icc"
_BRIDGE_NAME = "com.docker.network.bridge.name"

_MOUNTS = Path("/proc/self/mountinfo")
_PROJECT_QUOTAS = frozenset({"prjquota", "pquota"})


Ask = Callable[..., Awaitable[Any]]
"""Sends a request (method, path, `params`, `body`); returns the JSON answer, raises AgentError."""


@dataclass(frozen=True, slots=True)
class DaemonFacts:
    """The daemon of an engine, as its host shows it; `settings` are empty if unreadable."""

    nofile: int | None
    settings: Mapping[str, Any]
    mounts: str
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Cached properties of an engine."""

    api: str
    cpus: int
    network: str
    runc: str
    daemon: DaemonFacts
    has_layer_quota: bool
    platform: str = ""


def daemon_facts(socket_path: str) -> DaemonFacts:
    """Read the host's files about the daemon behind a socket. Blocks."""
    daemon = daemon_pid(socket_path)
    return DaemonFacts(
        nofile=None if daemon is None else grantable_nofile(daemon),
        settings=known_settings(daemon),
        pid=daemon,
        mounts=_MOUNTS.read_text("utf-8", "replace"),
    )


def api_of(version: Mapping[str, Any]) -> str:
    """The API version to use, by a `/version` answer; EngineError if the engine is too old."""
    spoken = str(version["ApiVersion"])
    if _number(spoken) < _number(MIN_API):
        raise EngineError("info", f"the engine has API {spoken}, and {MIN_API} is needed")
    return min(spoken, _MAX_API, key=_number)


async def engine_facts(
    ask: Ask, api: str, version: Mapping[str, Any], daemon: DaemonFacts
) -> EngineFacts:
    """Query an engine's facts, and create its network if necessary."""
    info = await ask("GET", "/info")
    return EngineFacts(
        api=api,
        cpus=int(info["NCPU"]),
        network=await _network(ask),
        runc=component(version, "runc"),
        daemon=daemon,
        has_layer_quota=has_layer_quota(info, daemon.mounts),
        platform=platform_of(version),
    )


def component(version: Mapping[str, Any], name: str) -> str:
    """The version of a component in a `/version` answer; empty if it is not listed."""
    parts = {part["Name"]: part["Version"] for part in version.get("Components") or ()}
    return str(parts.get(name, ""))


def platform_of(version: Mapping[str, Any]) -> str:
    """The platform whose images an engine runs, by a `/version` answer; empty if not named."""
    system = str(version.get("Os") or "")
    architecture = str(version.get("Arch") or "")
    return f"{system}/{architecture}" if system and architecture else ""


def has_layer_quota(info: Mapping[str, Any], mountinfo: str) -> bool:
    """Return whether `--storage-opt size` works, by `/info` and the text of /proc/self/mountinfo.

    btrfs always supports it; overlay2 requires XFS with project quotas under the data root. The
    store of containerd does not, whatever its driver.
    """
    if has_containerd_store(info):
        return False
    driver = info.get("Driver")
    if driver != "overlay2":
        return driver == "btrfs"
    layers = PurePosixPath(str(info.get("DockerRootDir") or "/"), "overlay2")
    depth = 0
    found = False
    for line in mountinfo.splitlines():
        mount, _, file_system = line.partition(" - ")
        target = PurePosixPath(mount.split()[4].replace("\\040", " "))
        kind, _, options = file_system.split(" ", 2)
        # The deepest mount above the layers holds them; a later one hides an earlier one.
        if layers.is_relative_to(target) and len(target.parts) >= depth:
            depth = len(target.parts)
            found = kind == "xfs" and not _PROJECT_QUOTAS.isdisjoint(options.split(","))
    return found


def isolates(network: Mapping[str, Any]) -> bool:
    """Return whether a network isolates containers from each other."""
    return bool(network.get("Options", {}).get(_ICC) == "false")


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


async def _network(ask: Ask) -> str:
    """Find or create a network that isolates sessions from each other."""
    networks = await _networks(ask)
    if isolates(networks.get("bridge", {})):
        return "bridge"
    if OWN_NETWORK not in networks:
        options = {_ICC: "false", _BRIDGE_NAME: OWN_NETWORK}
        network = {"Name": OWN_NETWORK, "Driver": "bridge", "Options": options}
        try:
            await ask("POST", "/networks/create", body=network | {"CheckDuplicate": True})
        except EngineError:  # another agent on this host may just have created it
            if OWN_NETWORK not in await _networks(ask):
                raise
    elif not isolates(networks[OWN_NETWORK]):
        cause = f"network {OWN_NETWORK} lets containers reach each other: remove it"
        raise EngineError("info", cause)
    return OWN_NETWORK


async def _networks(ask: Ask) -> dict[str, Mapping[str, Any]]:
    filters = json.dumps({"name": ["bridge", OWN_NETWORK]})  # also matches parts of names
    found = await ask("GET", "/networks", params={"filters": filters})
    return {each["Name"]: each for each in found}
