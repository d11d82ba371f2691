"""What an image may bring along of its own. Pure.

The engine takes an image's ports, labels, variables and volumes over into its containers, and no
request can prevent that. None of them weakens isolation: only requested ports are published,
the agent's labels and variables override the image's, and a volume is a folder of the container's
own. But all of it comes back in each list and description of the container. One with 131,070
ports costs the engine 1.6 s at its creation, and 4 MB in every answer that it is in.
"""

import json
import posixpath
from collections.abc import Mapping
from typing import Any

from agent.docker.container_config import PUBLIC_DIR

MAX_BYTES = 64 * 1024
"""Of an image's settings as JSON; those of large images in use are a tenth of it."""
MAX_VOLUMES = 32
"""Each is a folder to make and copy, and a mount."""

_TAKEN = ("/proc", "/sys", "/dev", PUBLIC_DIR)
"""Folders of the kernel or the agent, where no volume can be mounted."""


def why_refused(settings: Mapping[str, Any]) -> str | None:
    """Return why no container is created from an image with these settings; None if it can be."""
    size = len(json.dumps(settings))
    if size > MAX_BYTES:
        return f"its ports, labels, variables and other settings take {size} bytes of {MAX_BYTES}"
    volumes = settings.get("Volumes") or {}
    if len(volumes) > MAX_VOLUMES:
        return f"it has {len(volumes)} volumes; {MAX_VOLUMES} are allowed"
    for volume in volumes:
        path = posixpath.normpath("/" + volume.lstrip("/"))
        if path == "/" or any(f"{path}/".startswith(f"{taken}/") for taken in _TAKEN):
            return f"it has a volume at {json.dumps(volume[:100])}"
    return None
