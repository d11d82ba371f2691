"""What this host does for its control plane, and no more: the host's own policy file.

A control plane that is taken over can order no more on this host than this file allows. Privileged
containers, mounts of the host's files and devices are not in the contract at all.
"""

import stat
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from agent.domain.errors import NotAllowedError
from agent.domain.registry_address import why_refused
from agent.domain.session import MEBIBYTE
from tiltyard.contract import NetworkMode, SessionSpec
from tiltyard.runtime.settings import (
    Mistake,
    Settings,
    SettingsError,
    mistakes_of,
    placed,
    read_toml,
)

_KEY = ("policy",)
"""The setting that names the file."""
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def _registry(entry: str) -> str:
    cause = why_refused(entry)
    if cause is not None:
        raise ValueError(f"{entry!r}: {cause}")
    return entry.lower()


class PolicyError(SettingsError):
    """The policy cannot be read or does not fit; the text says what to fix."""


class Policy(Settings):
    """Limits of what may be asked of this host; what is left out is not limited.

    Only `host_network` has to be allowed: a session in the host's network reaches whatever listens
    on its loopback. `allowed_registries` are `host[:port]`, in whatever case; `max_cpu` in cores,
    `max_ram` and `max_disk` in MiB, and `max_gpus` are those of one session's limits.
    """

    allowed_registries: tuple[Annotated[str, AfterValidator(_registry)], ...] | None = None
    max_cpu: Annotated[float, Field(gt=0)] | None = None
    max_ram: Annotated[float, Field(gt=0)] | None = None
    max_gpus: Annotated[int, Field(ge=0)] | None = None
    max_disk: Annotated[float, Field(gt=0)] | None = None
    host_network: bool = False

    def check_image(self, image: str) -> None:
        """Refuse an image of a registry that is not allowed.

        Raises:
            NotAllowedError: The policy does not list it.
        """
        registry = image.partition("/")[0]
        allowed = self.allowed_registries
        if allowed is not None and registry.lower() not in allowed:
            raise NotAllowedError(
                f"use registry {registry}", "does not list it in allowed_registries"
            )

    def check_spec(self, spec: SessionSpec) -> None:
        """Refuse a session beyond the limits.

        Raises:
            NotAllowedError: It names the limit.
        """
        self.check_image(spec.image)
        if spec.network_mode is NetworkMode.HOST and not self.host_network:
            raise NotAllowedError("use the host's network", "does not have host_network = true")
        asked = (
            ("max_cpu", self.max_cpu, spec.limits.nano_cpus / 10**9),
            ("max_ram", self.max_ram, spec.limits.memory_bytes / MEBIBYTE),
            ("max_gpus", self.max_gpus, max(spec.limits.gpus, spec.reservation.gpus)),
            ("max_disk", self.max_disk, spec.disk_bytes / MEBIBYTE),
        )
        for key, most, amount in asked:
            if most is not None and amount > most:
                raise NotAllowedError(
                    f"allocate {amount:g} to one session", f"has {key} = {most:g}"
                )


def load_policy(path: Path | None) -> Policy:
    """Read the policy; without a file nothing is limited but the use of the host's network.

    Raises:
        PolicyError: It cannot be read, or others than its owner may write it.
    """
    if path is None:
        return Policy()
    try:
        table = read_toml(path)
        mode = path.stat().st_mode
        if mode & _WRITABLE_BY_OTHERS:
            text = f"{path} can be written by others; chmod go-w {path}"
            raise PolicyError(Mistake(_KEY, text))
        return Policy.model_validate(table)
    except SettingsError as error:
        raise PolicyError(*(replace(each, key=_KEY) for each in error.mistakes)) from error
    except OSError as error:
        raise PolicyError(Mistake(_KEY, f"cannot read {path}: {error.strerror}")) from error
    except ValidationError as error:
        raise PolicyError(*placed(mistakes_of(error, Policy), path)) from error
