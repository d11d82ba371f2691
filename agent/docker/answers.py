"""Parse the engine's JSON. Pure."""

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from agent.docker.dockerd import open_hosts
from agent.docker.wording import Meaning, parts_of
from agent.domain.containers.engine import Container, ContainerStatus, InitState
from agent.domain.sessions.session import Process
from agent.domain.sessions.stopping import signal_number

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)")
_NEVER = "0001-01-01"  # Go's zero time
_RUNNING = frozenset({"running", "paused", "restarting"})
_LARGEST_PID = 2**31 - 1  # Of pid_t
_LARGEST_EXIT_CODE = 2**31 - 1  # Of either sign, in the contract
_MOST_BYTES = 2**60
_HOME = "HOME="
_ROOT = ("", "0", "root")  # Users of images that start as root

CONTAINERD_ROOT = "/var/lib/containerd"
"""Folder of containerd's images by default; the engine does not name it."""
_CONTAINERD_STORE = "io.containerd.snapshotter.v1"


def _number(value: Any, most: int, *, least: int = 0) -> int:
    """Return a number within its bounds; ValueError for any other."""
    number = int(value)
    if not least <= number <= most:
        raise ValueError(f"{number} is not {least} to {most}")
    return number


def engine_time(text: str) -> float | None:
    """Parse an RFC 3339 time into Unix seconds; None if it was never set."""
    found = _TIME.fullmatch(text)
    if found is None or text.startswith(_NEVER):
        return None
    moment = datetime.fromisoformat(found[1] + found[3].replace("Z", "+00:00"))
    return moment.astimezone(UTC).timestamp() + float(found[2] or 0)


def pid_of(answer: Mapping[str, Any]) -> int | None:
    """The process id in an inspect answer; None if the container does not run."""
    state = answer["State"]
    is_running = state["Status"] in _RUNNING
    return _number(state["Pid"], _LARGEST_PID) or None if is_running else None


def container_of(
    answer: Mapping[str, Any], process: Process | None, init: InitState = InitState.UNKNOWN
) -> Container:
    """Parse an inspect answer. `process`: the live process with its pid, in the state `init`."""
    state = answer["State"]
    status = status_of(state["Status"])
    ended = status is ContainerStatus.ENDED
    end_time = engine_time(state["FinishedAt"])
    return Container(
        container=answer["Id"],
        name=answer["Name"].removeprefix("/"),
        status=status,
        labels=answer["Config"].get("Labels") or {},
        process=process,
        init=init,
        exit_code=_exit_code(state["ExitCode"]) if ended and end_time is not None else None,
        oom_killed=bool(state["OOMKilled"]) and ended,
        end_time=end_time,
        error=state["Error"],
        address=address_of(answer),
        ipv6_address=address_of(answer, "GlobalIPv6Address"),
        stop_signal=_stop_signal(answer["Config"]),
        home=_home(answer["Config"]),
        starts_as_root=str(answer["Config"].get("User") or "").partition(":")[0] in _ROOT,
    )


def container_of_listing(entry: Mapping[str, Any]) -> Container:
    """Parse a listing entry, which has no process, times or OOM flag."""
    ended = parts_of(Meaning.EXIT_CODE, entry.get("Status", ""))
    return Container(
        container=entry["Id"],
        name=name_in(entry),
        status=status_of(entry["State"]),
        labels=entry.get("Labels") or {},
        exit_code=_exit_code(ended["code"]) if ended else None,
        address=address_of(entry),
        ipv6_address=address_of(entry, "GlobalIPv6Address"),
    )


def name_in(entry: Mapping[str, Any]) -> str:
    """The name of a container in a listing entry."""
    return str(entry["Names"][0]).removeprefix("/")


def _stop_signal(settings: Mapping[str, Any]) -> str:
    """Return the signal that an image declares; empty if there is none, or no such signal."""
    name = str(settings.get("StopSignal") or "")
    return "" if signal_number(name) is None else name


def _home(settings: Mapping[str, Any]) -> str:
    """Return the HOME that an image sets; empty if none, as the engine takes an empty one."""
    values = [entry for entry in settings.get("Env") or () if entry.startswith(_HOME)]
    return str(values[-1]).removeprefix(_HOME) if values else ""


def _exit_code(value: Any) -> int:
    return _number(value, _LARGEST_EXIT_CODE, least=-_LARGEST_EXIT_CODE)


def address_of(answer: Mapping[str, Any], field: str = "IPAddress") -> str:
    """The container's address on its only network; empty if it has none."""
    networks = (answer.get("NetworkSettings") or {}).get("Networks") or {}
    found = (one.get(field) for one in networks.values())
    return next((str(address) for address in found if address), "")


def status_of(state: str) -> ContainerStatus:
    """Convert the engine's state; `removing` and `dead` count as ended."""
    if state == "created":
        return ContainerStatus.CREATED
    return ContainerStatus.RUNNING if state in _RUNNING else ContainerStatus.ENDED


def references(images: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Unpacked bytes of listed images, by digest reference."""
    return {
        reference: _number(image.get("Size", 0), _MOST_BYTES)
        for image in images
        for reference in image.get("RepoDigests") or ()
        if not reference.startswith("<none>")
    }


def volume_paths(listed: Mapping[str, Any]) -> set[str]:
    """Return the host paths of the volumes of a listed container."""
    mounts = listed.get("Mounts") or ()
    return {mount["Source"] for mount in mounts if mount.get("Type") == "volume"}


def volume_sizes(usage: Mapping[str, Any], paths: Collection[str]) -> list[int]:
    """Bytes of the volumes at these paths, by the engine's disk usage.

    By path, since 28.5 names no anonymous volumes in the mounts of a container.
    """
    volumes = usage["Volumes"] or ()
    found = (volume["UsageData"]["Size"] for volume in volumes if volume["Mountpoint"] in paths)
    return [_number(size, _MOST_BYTES, least=-1) for size in found]  # -1: not measured


class MissingFeature(NamedTuple):
    """A missing engine or kernel feature: its consequence and a fix."""

    why: str
    hint: str

    def __str__(self) -> str:
        return f"{self.why}: {self.hint}"


def warnings_of(
    info: Mapping[str, Any], settings: Mapping[str, Any], *, own_network: bool
) -> tuple[str, ...]:
    """Problems of an engine, each with a fix. `settings`: those of its daemon."""
    found = [feature for key, feature in WANTED.items() if not info.get(key)]
    if not any("name=seccomp" in option for option in info.get("SecurityOptions") or ()):
        found.append(NO_SECCOMP)
    if own_network:
        found.append(ICC)
    if open_listeners(info, settings):
        found.append(OPEN_LISTENER)
    return tuple(map(str, found))


def open_listeners(info: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[str, ...]:
    """TCP addresses that need no client certificate, by the engine's warnings or settings."""
    found = (parts_of(Meaning.OPEN_LISTENER, text) for text in info.get("Warnings") or ())
    warned = tuple(each["address"] for each in found if each is not None)
    return warned or open_hosts(settings)


WANTED: Mapping[str, MissingFeature] = {
    "LiveRestoreEnabled": MissingFeature(
        "a crash or restart of the Docker daemon ends every session",
        'set "live-restore": true in /etc/docker/daemon.json and run `systemctl reload docker`',
    ),
    "MemoryLimit": MissingFeature(
        "the kernel does not limit the memory of containers", "boot with cgroup_enable=memory"
    ),
    "SwapLimit": MissingFeature(
        "the kernel does not limit the swap of containers", "boot with swapaccount=1"
    ),
    "CpuCfsQuota": MissingFeature(
        "the kernel does not limit the cores of containers", "it needs CONFIG_CFS_BANDWIDTH"
    ),
    "PidsLimit": MissingFeature(
        "the kernel does not limit the processes of containers", "it needs CONFIG_CGROUP_PIDS"
    ),
}
"""Fields of `/info` that must be true."""
NO_SECCOMP = MissingFeature(
    "containers run without a seccomp profile",
    "use a Docker Engine and a kernel that have seccomp",
)
ICC = MissingFeature(
    "containers on the default bridge reach each other, so sessions use the bridge tiltyard0 and "
    "start about 80 ms later",
    'set "icc": false in /etc/docker/daemon.json and restart the daemon once live-restore is on',
)
OPEN_LISTENER = MissingFeature(
    "anyone who can reach the Docker daemon's TCP port is root on this host",
    "take the tcp:// address out of `hosts` in /etc/docker/daemon.json and of dockerd's `-H`, or "
    'set "tlsverify": true with certificates',
)


def has_containerd_store(info: Mapping[str, Any]) -> bool:
    """Return whether images are in containerd's store, by `/info`, as usual since Engine 29."""
    status = dict(pair for pair in info.get("DriverStatus") or () if len(pair) == 2)
    return status.get("driver-type") == _CONTAINERD_STORE


def image_root(info: Mapping[str, Any]) -> str:
    """The folder of images and of what containers write, by `/info`; empty if it is not named."""
    if has_containerd_store(info):
        return CONTAINERD_ROOT
    return str(info.get("DockerRootDir") or "")
