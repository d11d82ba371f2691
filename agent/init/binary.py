"""`tiltyard-init`, the first process of each container, as it was built for this machine."""

import functools
import hashlib
import platform
from dataclasses import dataclass
from pathlib import Path

PATH = Path(__file__).with_name("bin") / "tiltyard-init"

_ELF = b"\x7fELF\x02\x01"  # Of 64 bits, little-endian
_MACHINES = {"x86_64": 62, "aarch64": 183}
"""Values of `e_machine`, by the kernel's name of an architecture."""


class NoInitError(RuntimeError):
    """This installation lacks the program; the text has a hint."""


@dataclass(frozen=True, slots=True)
class InitProgram:
    """The program: its bytes and their SHA-256, 64 hexadecimal digits."""

    data: bytes
    sha256: str


@functools.cache
def init_program(path: Path = PATH, machine: str = platform.machine()) -> InitProgram:
    """Return the program of this installation. Blocks.

    Raises:
        NoInitError: The program is missing, or is for other machines.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NoInitError(
            f"cannot read {path}: {error.strerror}. `make install` builds it in a clone, and"
            " `make wheel` for an installation"
        ) from None
    built_for = int.from_bytes(data[18:20], "little")
    if not data.startswith(_ELF) or built_for != _MACHINES.get(machine):
        raise NoInitError(
            f"cannot use {path}: it is not a program for {machine}. Install the package that"
            f" `make wheel ARCH={machine}` builds"
        )
    return InitProgram(data, hashlib.sha256(data).hexdigest())
