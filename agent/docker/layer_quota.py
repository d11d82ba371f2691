"""Whether an engine can bound the writable layer of a container, and where it does. Pure.

`docker info` does not say it, and a start that asks for it elsewhere is refused. So it is read off
the storage driver and, for overlay2, off how the file system below it is mounted.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

_ALWAYS = frozenset({"btrfs"})
"""Drivers that can do so on every file system they run on."""
_PROJECT_QUOTAS = frozenset({"prjquota", "pquota"})
_SLACK_BYTES = 64 * 2**20


def has_layer_quota(info: Mapping[str, Any], mountinfo: str) -> bool:
    """Return whether `--storage-opt size` works, by `/info` and the text of /proc/self/mountinfo.

    With overlay2 it takes XFS with project quotas below the data root.
    """
    driver = info.get("Driver")
    if driver != "overlay2":
        return driver in _ALWAYS
    layers = PurePosixPath(str(info.get("DockerRootDir") or "/"), "overlay2")
    depth, found = 0, False
    for line in mountinfo.splitlines():
        mount, _, file_system = line.partition(" - ")
        target = PurePosixPath(mount.split()[4].replace("\\040", " "))
        kind, _, options = file_system.split(" ", 2)
        # The deepest mount above the layers holds them; a later one hides an earlier one.
        if layers.is_relative_to(target) and len(target.parts) >= depth:
            depth = len(target.parts)
            found = kind == "xfs" and not _PROJECT_QUOTAS.isdisjoint(options.split(","))
    return found


def layer_quota(disk_bytes: int) -> int:
    """The size to bound a layer by: above the limit, so that the session is ended and says why."""
    return disk_bytes + max(disk_bytes // 8, _SLACK_BYTES)
