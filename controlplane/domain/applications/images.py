"""What an image is for, and what it executes: platforms and commands. Pure.

All of it is what a registry claims. It decides which hosts pull an image, and the responses to
callers; the engine decides what runs.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

UNKNOWN = ""  # A platform that nobody has named

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}\Z", re.ASCII)
_SAME: Mapping[str, str] = {
    "x86_64": "amd64",
    "x86-64": "amd64",
    "aarch64": "arm64",
    "i386": "386",
    "armhf": "arm",
    "armel": "arm",
}
"""Other names of architectures that engines accept."""
_ALSO_RUN: Mapping[str, frozenset[str]] = {
    "amd64": frozenset({"386"}),
    "arm64": frozenset({"arm"}),
}
"""The other architectures whose images an engine accepts, by its own architecture."""

_SHELLS = frozenset({"sh", "bash", "ash", "dash", "ksh", "zsh", "busybox"})
_COMMAND_OPTION = re.compile(r"-[a-z]*c\Z")
_PARAMETER = re.compile(r"\$\{?[@*0-9#]")  # Of a shell: its script uses the arguments
_SPACE = re.compile(r"\S\s+\S")


class Command(StrEnum):
    """What an image executes: a program, a shell that ignores arguments, or nothing by itself."""

    UNKNOWN = ""
    PROGRAM = "program"
    SHELL = "shell"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """The facts of an image's config."""

    platform: str
    command: Command


_WARNINGS: Mapping[Command, str] = {
    Command.SHELL: "its entry point is in shell form, which ignores `args`:"
    " use the form of a JSON array",
    Command.NONE: "it names no command: only starts with `args` run",
}


def warnings_of(command: Command) -> tuple[str, ...]:
    """Return what callers who start sessions of an image should know about its command."""
    warning = _WARNINGS.get(command)
    return () if warning is None else (warning,)


def platform_name(system: str, architecture: str, variant: str = "") -> str:
    """Return the name of a platform, such as "linux/arm/v7"; UNKNOWN if a part is not a name."""
    parts = [system, architecture]
    if variant:
        parts.append(variant)
    return "/".join(parts) if all(map(_NAME.match, parts)) else UNKNOWN


def can_run(host: str, images: Iterable[str]) -> bool:
    """Return whether an engine of a platform may run one of these images; True if unknown.

    Variants do not count: which ones a processor runs is known to its engine alone.
    """
    found = list(images)
    if host == UNKNOWN or not found or UNKNOWN in found:
        return True
    return any(_is_for(image, host) for image in found)


def command_of(entry_point: Sequence[str], command: Sequence[str]) -> Command:
    """Return what an image with this entry point and command executes.

    Arguments of a start take the place of the command, and follow the entry point.
    """
    if not entry_point or list(entry_point) == [""]:
        return Command.PROGRAM if command else Command.NONE
    return Command.SHELL if _ignores_arguments(entry_point) else Command.PROGRAM


def _ignores_arguments(entry_point: Sequence[str]) -> bool:
    """Return whether an entry point ends with a script for a shell that uses no parameters."""
    if len(entry_point) < 2:
        return False
    option = entry_point[-2]
    script = entry_point[-1]
    if not _COMMAND_OPTION.match(option) or _PARAMETER.search(script):
        return False
    is_shell = any(PurePosixPath(word).name in _SHELLS for word in entry_point[:-2])
    return is_shell or (len(entry_point) == 3 and bool(_SPACE.search(script)))


def _is_for(image: str, host: str) -> bool:
    system, architecture = _parts(image)
    host_system, host_architecture = _parts(host)
    if system != host_system:
        return False
    others = _ALSO_RUN.get(host_architecture, frozenset())
    return architecture == host_architecture or architecture in others


def _parts(platform: str) -> tuple[str, str]:
    system, _, rest = platform.partition("/")
    architecture = rest.partition("/")[0]
    return system, _SAME.get(architecture, architecture)
