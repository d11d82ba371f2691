"""The demo game: one static C program; `push_game` makes an image of it and nothing else."""

import hashlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("game.c")
UDP_PORT = 7777
TCP_PORT = 7778

_COMPILE = ("gcc", "-std=gnu17", "-O2", "-Wall", "-Wextra", "-Werror")
_COMPILE_TIMEOUT = 60


@dataclass(frozen=True)
class Image:
    """An image in a registry."""

    repository: str  # Name within the registry
    tag: str
    digest: str  # `sha256:…` of the manifest that the registry holds
    address: str  # `host:port` of the registry

    @property
    def reference(self) -> str:
        """What an engine pulls: by digest, so that a moved tag changes nothing."""
        return f"{self.address}/{self.repository}@{self.digest}"


def compiled(source: Path = SOURCE, *options: str) -> Path:
    """Return the compiled game or another program, from `build/` if it was compiled before."""
    command = (*_COMPILE, *(options or ("-static",)))
    key = hashlib.sha256(source.read_bytes() + " ".join(command).encode()).hexdigest()[:16]
    program = ROOT / "build" / f"{source.stem}-{key}"
    if not program.exists():
        program.parent.mkdir(exist_ok=True)
        partial = program.with_suffix(f".{os.getpid()}.part")
        subprocess.run(
            [*command, "-o", str(partial), str(source)], check=True, timeout=_COMPILE_TIMEOUT
        )
        partial.replace(program)
    return program
