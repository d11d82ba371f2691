"""The host policy: limits that the host enforces on its control plane.

A compromised control plane can do no more on this host than its policy file allows. The protocol
has no privileged containers, host mounts or devices at all.
"""

import stat
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from agent.domain.errors import NotAllowedError
from tiltyard.contract import MEBI, NANO, Capability, NetworkMode, SessionSpec
from tiltyard.images import why_refused
from tiltyard.runtime.settings import (
    Mistake,
    Settings,
    SettingsError,
    mistakes_of,
    placed,
    read_toml,
)

_KEY = ("policy",)  # The setting that names the file
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def _registry(entry: str) -> str:
    cause = why_refused(entry)
    if cause is not None:
        raise ValueError(f"{entry!r}: {cause}")
    return entry.lower()


class Policy(Settings):
    """Limits of requests to this host; an unset one does not apply, apart from `max_pids`.

    `host_network` is denied by default: such a session reaches everything on the host's loopback.
    So are all `capabilities`, which a container may have only if they are listed.
    `allowed_registries` are `host[:port]`, case-insensitive; `max_cpu` in cores, `max_ram` and
    `max_disk` in MiB, `max_gpus` and `max_pids` apply per session. All sessions share the
    processes that the kernel has, so that there is always a `max_pids`.
    """

    allowed_registries: tuple[Annotated[str, AfterValidator(_registry)], ...] | None = None
    max_cpu: Annotated[float, Field(gt=0)] | None = None
    max_ram: Annotated[float, Field(gt=0)] | None = None
    max_gpus: Annotated[int, Field(ge=0)] | None = None
    max_disk: Annotated[float, Field(gt=0)] | None = None
    max_pids: Annotated[int, Field(gt=0)] = 4096
    host_network: bool = False
    capabilities: frozenset[Capability] = frozenset()

    def check_image(self, image: str) -> None:
        """Check that an image's registry is allowed; raises NotAllowedError."""
        registry = image.partition("/")[0]
        allowed = self.allowed_registries
        if allowed is not None and registry.lower() not in allowed:
            raise NotAllowedError(
                f"use registry {registry}", "does not list it in allowed_registries"
            )

    def check_spec(self, spec: SessionSpec) -> None:
        """Check a session against the limits; raises NotAllowedError."""
        self.check_image(spec.image)
        if spec.network_mode is NetworkMode.HOST and not self.host_network:
            raise NotAllowedError("use the host's network", "does not have host_network = true")
        denied = ", ".join(sorted(set(spec.capabilities) - self.capabilities))
        if denied:
            raise NotAllowedError(f"use {denied}", "does not list it in capabilities")
        asked = (
            ("max_cpu", self.max_cpu, spec.limits.nano_cpus / NANO),
            ("max_ram", self.max_ram, spec.limits.memory_bytes / MEBI),
            ("max_gpus", self.max_gpus, max(spec.limits.gpus, spec.reservation.gpus)),
            ("max_disk", self.max_disk, spec.disk_bytes / MEBI),
            ("max_pids", self.max_pids, spec.pids),
        )
        for key, most, amount in asked:
            if most is not None and amount > most:
                raise NotAllowedError(
                    f"allocate {amount:g} to one session", f"has {key} = {most:g}"
                )


def load_policy(path: Path | None) -> Policy:
    """Read the policy; without a file only the host's network and capabilities are denied.

    Raises SettingsError.
    """
    if path is None:
        return Policy()
    try:
        policy = Policy.model_validate(read_toml(path))
        mode = path.stat().st_mode
    except SettingsError as error:
        raise SettingsError(*(replace(each, key=_KEY) for each in error.mistakes)) from error
    except OSError as error:
        raise SettingsError(Mistake(_KEY, f"cannot read {path}: {error.strerror}")) from error
    except ValidationError as error:
        raise SettingsError(*placed(mistakes_of(error, Policy), path)) from error
    if mode & _WRITABLE_BY_OTHERS:
        raise SettingsError(Mistake(_KEY, f"{path} can be written by others; chmod go-w {path}"))
    return policy
