"""Whether an engine speaks to a registry on loopback that has no TLS, as those of tests."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import docker

LOOPBACK_NETWORK = "127.0.0.0/8"
HINT = (
    f'the engine refuses registries on loopback: add "{LOOPBACK_NETWORK}" to "insecure-registries"'
    " in /etc/docker/daemon.json, and run `systemctl reload docker`"
)


def check_registries(docker_socket: Path) -> None:
    """Raise RuntimeError with a hint if the engine demands TLS of registries on loopback."""
    with contextlib.closing(docker.APIClient(f"unix://{docker_socket}", version="auto")) as client:
        if not has_loopback(client.info()):
            raise RuntimeError(HINT)


def has_loopback(info: Mapping[str, Any]) -> bool:
    """Return whether registries on loopback need no TLS, by `/info`; True if it does not say.

    Docker Engine 29.10 and later demand it if daemon.json lists registries without loopback.
    """
    networks = (info.get("RegistryConfig") or {}).get("InsecureRegistryCIDRs")
    return networks is None or LOOPBACK_NETWORK in networks
