"""The engine's JSON as data of the agent. Pure."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from agent.docker.dockerd import open_hosts
from agent.domain.engine import Container, ContainerStatus
from agent.domain.session import Process

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)")
_NEVER = "0001-01-01"
"""How Go writes a time that was not set."""
_EXITED = re.compile(r"Exited \((\d+)\)")
_RUNNING = frozenset({"running", "paused", "restarting"})


def engine_time(text: str) -> float | None:
    """Seconds of Unix time from RFC 3339 with up to nine digits; None when it was never set."""
    found = _TIME.fullmatch(text)
    if found is None or text.startswith(_NEVER):
        return None
    moment = datetime.fromisoformat(found[1] + found[3].replace("Z", "+00:00"))
    return moment.astimezone(UTC).timestamp() + float(found[2] or 0)


def pid_of(answer: Mapping[str, Any]) -> int | None:
    """The process id in an inspect, None when the container does not run."""
    state = answer["State"]
    return int(state["Pid"]) or None if state["Status"] in _RUNNING else None


def container_of(answer: Mapping[str, Any], process: Process | None) -> Container:
    """A container from an inspect, with the process that lives under the id it named."""
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
        exit_code=int(state["ExitCode"]) if ended and end_time is not None else None,
        oom_killed=bool(state["OOMKilled"]) and ended,
        start_time=engine_time(state["StartedAt"]),
        end_time=end_time,
        error=state["Error"],
        address=address_of(answer),
    )


def container_of_listing(entry: Mapping[str, Any]) -> Container:
    """A container from a listing alone, which has neither process, times nor OOM kills."""
    code = _EXITED.match(entry.get("Status", ""))
    return Container(
        container=entry["Id"],
        name=entry["Names"][0].removeprefix("/"),
        status=status_of(entry["State"]),
        labels=entry.get("Labels") or {},
        exit_code=int(code[1]) if code else None,
        address=address_of(entry),
    )


def address_of(answer: Mapping[str, Any]) -> str:
    """The address on the one network that a container is on; empty for none of its own."""
    networks = (answer.get("NetworkSettings") or {}).get("Networks") or {}
    found = (one.get("IPAddress") for one in networks.values())
    return next((str(address) for address in found if address), "")


def status_of(state: str) -> ContainerStatus:
    """Convert the engine's state; `removing` and `dead` are ends."""
    if state == "created":
        return ContainerStatus.CREATED
    return ContainerStatus.RUNNING if state in _RUNNING else ContainerStatus.ENDED


def references(images: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """References by digest of listed images, with the bytes that each takes unpacked."""
    return {
        reference: int(image.get("Size", 0))
        for image in images
        for reference in image.get("RepoDigests") or ()
        if not reference.startswith("<none>")
    }


class Lack(NamedTuple):
    """What an engine or its kernel does without: why that matters, and what to do about it."""

    why: str
    hint: str

    def __str__(self) -> str:
        return f"{self.why}: {self.hint}"


def warnings_of(
    info: Mapping[str, Any], settings: Mapping[str, Any], *, own_network: bool
) -> tuple[str, ...]:
    """What is wrong with an engine, a sentence each with its fix; `settings` are its daemon's."""
    found = [lack for key, lack in WANTED.items() if not info.get(key)]
    if not any("name=seccomp" in option for option in info.get("SecurityOptions") or ()):
        found.append(NO_SECCOMP)
    if own_network:
        found.append(ICC)
    if open_listeners(info, settings):
        found.append(OPEN_LISTENER)
    return tuple(map(str, found))


def open_listeners(info: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[str, ...]:
    """TCP addresses on which an engine serves callers without a certificate.

    By its warnings, which begin differently between releases, or its daemon's settings.
    """
    found = map(_OPEN_LISTENER.search, info.get("Warnings") or ())
    warned = tuple(match["address"] for match in found if match is not None)
    return warned or open_hosts(settings)


_OPEN_LISTENER = re.compile(r"\bAPI is accessible on (?P<address>\S+)", re.IGNORECASE)

WANTED: Mapping[str, Lack] = {
    "LiveRestoreEnabled": Lack(
        "a crash or restart of the Docker daemon ends every session",
        'set "live-restore": true in /etc/docker/daemon.json and run `systemctl reload docker`',
    ),
    "MemoryLimit": Lack(
        "the kernel does not limit the memory of containers", "boot with cgroup_enable=memory"
    ),
    "SwapLimit": Lack(
        "the kernel does not limit the swap of containers", "boot with swapaccount=1"
    ),
    "CpuCfsQuota": Lack(
        "the kernel does not limit the cores of containers", "it needs CONFIG_CFS_BANDWIDTH"
    ),
    "PidsLimit": Lack(
        "the kernel does not limit the processes of containers", "it needs CONFIG_CGROUP_PIDS"
    ),
}
"""What must be true in the engine's `info`."""
NO_SECCOMP = Lack(
    "containers run without a seccomp profile",
    "use a Docker Engine and a kernel that have seccomp",
)
ICC = Lack(
    "containers on the default bridge reach each other, so sessions use the bridge tiltyard0 and "
    "start about 80 ms later",
    'set "icc": false in /etc/docker/daemon.json and restart the daemon once live-restore is on',
)
OPEN_LISTENER = Lack(
    "anyone who can reach the Docker daemon's TCP port is root on this host",
    "take the tcp:// address out of `hosts` in /etc/docker/daemon.json and of dockerd's `-H`, or "
    'set "tlsverify": true with certificates',
)
