"""`make up`: Tiltyard on this machine until SIGINT or SIGTERM, for scripts and for looking around.

Writes `.tiltyard/dev.json` last, when everything serves, and removes it first. API and registry
are on loopback; games are too, unless `--address` names another address of this machine.
"""

import fcntl
import json
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import AddressValueError, IPv4Address

import click

from controlplane.state_dir.private_files import write_private
from tests.support.deployment import (
    APPLICATION,
    REGION,
    REGISTRY_NAME,
    Deployment,
    StepFailedError,
    Steps,
    exit_on_signals,
)
from tests.support.harness import LOOPBACK, ROOT

FOLDER = ROOT / ".tiltyard"
DEV_JSON = FOLDER / "dev.json"
PREPARED = 4  # Containers that the agent keeps prepared, fewer than a host by itself
WEBHOOKS: Mapping[str, object] = {"webhook_networks": ["127.0.0.0/8"], "webhook_plain_http": True}
"""Settings with which webhooks reach receivers on this machine."""


@contextmanager
def announced(content: object) -> Iterator[None]:
    """Hold `content` in `.tiltyard/dev.json`, readable by its owner only."""
    write_private(DEV_JSON, json.dumps(content, indent=2).encode())
    try:
        yield
    finally:
        DEV_JSON.unlink()


@contextmanager
def alone() -> Iterator[None]:
    """Hold the one place for a `make up` of this clone; SystemExit when it is taken."""
    FOLDER.mkdir(mode=0o700, exist_ok=True)
    with (FOLDER / "up.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit("`make up` runs already in this clone") from None
        DEV_JSON.unlink(missing_ok=True)  # left by one that was killed
        yield


def dev_json(deployment: Deployment) -> dict[str, object]:
    """Return what scripts need to use this deployment."""
    control_plane = deployment.control_plane
    return {
        "base_url": control_plane.base_url,
        "token": control_plane.tokens["default"],
        "operator_token": control_plane.operator_token,
        "other_token": control_plane.tokens["other"],
        "location": REGION,
        "image": APPLICATION,
        "registry": {"name": REGISTRY_NAME, "address": deployment.registry.address},
    }


def serve(deployment: Deployment) -> None:
    """Wait for a signal; RuntimeError when a part ends by itself."""
    parts = [part.process for part in (deployment.control_plane, deployment.agent)]
    while True:
        for part in parts:
            if part.returncode is not None:
                raise RuntimeError(f"{part.name} ended with {part.returncode}:\n{part.tail()}")
        time.sleep(0.2)


def address_of_this_machine(_context: click.Context, _option: click.Parameter, value: str) -> str:
    """Return an address to which programs of this machine can bind; raises BadParameter."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((str(IPv4Address(value)), 0))
    except (AddressValueError, OSError):
        raise click.BadParameter(f"{value} is not an IPv4 address of this machine") from None
    if IPv4Address(value).is_unspecified:
        raise click.BadParameter("name the one address that players use")
    return value


@click.command()
@click.option(
    "--address",
    default=LOOPBACK,
    show_default=True,
    callback=address_of_this_machine,
    help="Address of this machine at which the games can be reached.",
)
def main(address: str) -> None:
    """Serve until a signal."""
    exit_on_signals(0)
    steps = Steps()
    try:
        with (
            alone(),
            Deployment(steps, prepared=PREPARED, address=address, **WEBHOOKS) as deployment,
            announced(dev_json(deployment)),
        ):
            steps.done(f"ready; {DEV_JSON.relative_to(ROOT)} says how to call it; Ctrl-C ends it")
            with steps.step("serving"):
                serve(deployment)
    except StepFailedError:
        sys.exit(1)


if __name__ == "__main__":
    main()
