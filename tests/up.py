"""`make up`: Tiltyard on this machine until SIGINT or SIGTERM, for scripts and for looking around.

Writes `.tiltyard/dev.json` last, when everything serves, and removes it first.
"""

import fcntl
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

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
from tests.support.harness import ROOT

FOLDER = ROOT / ".tiltyard"
DEV_JSON = FOLDER / "dev.json"
PREPARED = 4  # Containers that the agent keeps prepared, fewer than a host by itself


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


def main() -> int:
    """Serve until a signal and return the exit code."""
    exit_on_signals(0)
    steps = Steps()
    try:
        with (
            alone(),
            Deployment(steps, prepared=PREPARED) as deployment,
            announced(dev_json(deployment)),
        ):
            steps.done(f"ready; {DEV_JSON.relative_to(ROOT)} says how to call it; Ctrl-C ends it")
            with steps.step("serving"):
                serve(deployment)
    except StepFailedError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
