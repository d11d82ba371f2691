"""The body of `POST /containers/create`, which defines a container's isolation. Pure.

The part of it that can change later is also the body of `POST /containers/{id}/update`.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agent.docker.facts import EngineFacts
from agent.domain.containers.engine import LABEL_CONFIG, LOG_BYTES, ContainerSpec
from agent.domain.host.kernel_limits import ContainerLimits, KernelLimits, wanted_limits
from agent.domain.sessions.session import Port
from agent.init.channel import FOLDER
from tiltyard.contract import NANO, NetworkMode

PUBLIC_DIR = "/run/tiltyard"  # Directory in which a container finds its own metadata
INIT = "/run/tiltyard-init"  # Its first process, which waits for the program
CHANNEL = f"{PUBLIC_DIR}/{FOLDER}"  # Directory of the FIFOs between the agent and that process

_SLACK_BYTES = 64 * 2**20

LOG_DRIVER = "local"  # Preserves output byte for byte
# Two files: after a rotation, one of LOG_BYTES remains.
_LOG_CONFIG = {
    "Type": LOG_DRIVER,
    "Config": {"max-size": str(LOG_BYTES), "max-file": "2", "compress": "false"},
}
_MIN_NANO_CPUS = NANO // 100  # The kernel's minimum: a hundredth of a core
_MIN_MEMORY = 6 * 2**20  # The engine refuses a smaller limit or reservation
_SHARES_PER_CORE = 1024
_MIN_SHARES = 2
_MAX_SHARES = 2**18
"""The kernel's bounds of CPU shares."""


def container_config(spec: ContainerSpec, facts: EngineFacts) -> dict[str, Any]:
    """Build the body that creates `spec` with an engine of these facts."""
    bridged = spec.network_mode is NetworkMode.BRIDGE
    ports = spec.ports if bridged else ()
    labels = spec.labels
    if spec.prepared:
        labels[LABEL_CONFIG] = config_digest(spec, facts)
    return {
        "Image": spec.image,
        "Entrypoint": [INIT, CHANNEL],
        "Labels": labels,
        "ExposedPorts": {_name(port): {} for port in ports},
        "Healthcheck": {"Test": ["NONE"]},
        "Tty": False,
        "OpenStdin": False,
        "HostConfig": _isolation(spec)
        | _fixed_resources(spec, facts.daemon.nofile)
        | limits_config(_limits_of(spec), facts.cpus)
        | _network(spec, facts.network)
        | (_storage(spec.disk_bytes) if facts.has_layer_quota and spec.disk_bytes else {}),
    }


def limits_config(wanted: ContainerLimits, cpus: int) -> dict[str, Any]:
    """Build the part of a container's configuration that `update` can change."""
    limits = wanted.limits
    reservation = wanted.reservation
    memory = _at_least(_MIN_MEMORY, limits.memory_bytes)
    reserved = _at_least(_MIN_MEMORY, reservation.memory_bytes)
    shares = reservation.nano_cpus * _SHARES_PER_CORE // NANO
    return {
        "Memory": memory,
        "MemorySwap": memory,
        "MemoryReservation": min(reserved, memory) if memory else reserved,
        "NanoCpus": min(_at_least(_MIN_NANO_CPUS, limits.nano_cpus), cpus * NANO),
        "CpuShares": min(max(shares, _MIN_SHARES), _MAX_SHARES),
        "PidsLimit": wanted.pids,
    }


def kernel_limits(wanted: ContainerLimits, cpus: int) -> KernelLimits:
    """Return what the kernel enforces for a container of such a configuration."""
    config = limits_config(wanted, cpus)
    return wanted_limits(config["Memory"], config["NanoCpus"], config["PidsLimit"])


def config_digest(spec: ContainerSpec, facts: EngineFacts) -> str:
    """Digest of the body that creates `spec`, without what containers of one shape differ in."""
    common = replace(
        spec,
        internal_id="",
        record="",
        public_dir="",
        ports=tuple(replace(port, host=0) for port in spec.ports),
        prepared=False,
    )
    text = json.dumps(container_config(common, facts), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _isolation(spec: ContainerSpec) -> dict[str, Any]:
    return {
        "Init": False,
        "AutoRemove": False,
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        "Privileged": False,
        "CapDrop": ["ALL"],
        "CapAdd": [each.value for each in spec.capabilities],
        "SecurityOpt": ["no-new-privileges"],
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "LogConfig": _LOG_CONFIG,
    }


def _limits_of(spec: ContainerSpec) -> ContainerLimits:
    return ContainerLimits(spec.reservation, spec.limits, spec.pids)


def _fixed_resources(spec: ContainerSpec, nofile: int | None) -> dict[str, Any]:
    ulimits = [_ulimit("core", 0)]
    if nofile is not None:
        ulimits.append(_ulimit("nofile", nofile))
    return {
        "ShmSize": spec.shm_bytes,
        "Ulimits": ulimits,
        "DeviceRequests": _gpus(spec.gpu_ids),
    }


def _storage(disk_bytes: int) -> dict[str, Any]:
    """Bound the layer above the disk limit, so that the agent ends the session first."""
    return {"StorageOpt": {"size": str(disk_bytes + max(disk_bytes // 8, _SLACK_BYTES))}}


def _network(spec: ContainerSpec, network: str) -> dict[str, Any]:
    bridged = spec.network_mode is NetworkMode.BRIDGE
    bindings: dict[str, list[dict[str, str]]] = {}
    for port in spec.ports if bridged else ():
        binding = {"HostIp": spec.bind_address, "HostPort": str(port.host)}
        bindings.setdefault(_name(port), []).append(binding)
    return {
        "NetworkMode": network if bridged else "host",
        "PortBindings": bindings,
        "PublishAllPorts": False,
        "Mounts": [_mount(spec.init, INIT), _mount(spec.public_dir, PUBLIC_DIR)],
    }


def _mount(source: str, target: str) -> dict[str, Any]:
    """A file or directory of the host, which the container can only read."""
    return {
        "Type": "bind",
        "Source": source,
        "Target": target,
        "ReadOnly": True,
        "BindOptions": {"Propagation": "rprivate", "NonRecursive": True},
    }


def _gpus(gpu_ids: Sequence[str]) -> list[dict[str, Any]]:
    if not gpu_ids:
        return []
    return [{"Driver": "nvidia", "DeviceIDs": list(gpu_ids), "Capabilities": [["gpu"]]}]


def _ulimit(name: str, value: int) -> dict[str, Any]:
    return {"Name": name, "Soft": value, "Hard": value}


def _name(port: Port) -> str:
    """The engine's name of a port in the container's network."""
    return f"{port.bound(in_host=False)}/{port.protocol.value}"


def _at_least(minimum: int, value: int) -> int:
    """Raise `value` to `minimum`; 0 means no limit and stays."""
    return max(minimum, value) if value else 0
