"""The program that a container of an image executes, and which images are refused. Pure."""

import json
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.docker.container_config import INIT, PUBLIC_DIR
from agent.domain.errors import ImageCannotRunError

MAX_VOLUMES = 32  # Maximum volumes of an image; each costs a copied directory and a mount
_MAX_IMAGE = 64 * 1024
"""Maximum bytes of an image's settings as JSON; large images in use need a tenth."""
_NO_VOLUMES = ("/proc", "/sys", "/dev", PUBLIC_DIR, INIT)
"""Paths of the kernel or the agent, where no volume can be mounted."""


@dataclass(frozen=True, slots=True)
class ImageProgram:
    """The entry point and the command of an image; the engine stores shell forms with their shell.

    The rules are those of the engine.
    """

    entry_point: tuple[str, ...]
    command: tuple[str, ...]

    def with_args(self, args: Sequence[str]) -> tuple[str, ...]:
        """Return what is executed; arguments take the place of the command.

        Raises ImageCannotRunError if that is nothing.
        """
        program = (*self.entry_point, *(args or self.command))
        if not program:
            raise ImageCannotRunError("it names no command and none is given")
        return program


def image_program(settings: Mapping[str, Any]) -> ImageProgram:
    """Read an image's settings. Raises ImageCannotRunError for an image that is refused."""
    cause = why_refused(settings)
    if cause is not None:
        raise ImageCannotRunError(cause)
    entry_point = tuple(map(str, settings.get("Entrypoint") or ()))
    command = tuple(map(str, settings.get("Cmd") or ()))
    return ImageProgram(() if entry_point == ("",) else entry_point, command)


def why_refused(settings: Mapping[str, Any]) -> str | None:
    """Return why an image with these settings is refused; None if it is accepted.

    Containers inherit an image's ports, labels, variables and volumes, and the engine repeats
    them in each list and inspect answer: 4 MB with 131,070 ports.
    """
    size = len(json.dumps(settings))
    if size > _MAX_IMAGE:
        return f"its ports, labels, variables and other settings take {size} bytes of {_MAX_IMAGE}"
    volumes = settings.get("Volumes") or {}
    if len(volumes) > MAX_VOLUMES:
        return f"it has {len(volumes)} volumes; {MAX_VOLUMES} are allowed"
    for volume in volumes:
        path = posixpath.normpath("/" + volume.lstrip("/"))
        if path == "/" or any(f"{path}/".startswith(f"{taken}/") for taken in _NO_VOLUMES):
            return f"it has a volume at {json.dumps(volume[:100])}"
    return None
