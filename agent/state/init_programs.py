"""Programs that are mounted in containers as their first process: `<state_dir>/init/<sha256>`.

A file is never written to: a container refers to its path for as long as it exists, also when
newer agents bring other programs. All functions block.
"""

import contextlib
import hashlib
from collections.abc import Collection
from pathlib import Path

from agent.init.binary import InitProgram
from tiltyard.runtime.atomic_file import write
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

FOLDER = "init"
_MODE = 0o755
"""Any user of a container executes it; on the host, `state_dir` is private to the agent."""


def installed(state_dir: Path, sha256: str) -> Path:
    """Return the path of a program, which is there after `install`."""
    return state_dir / FOLDER / sha256


def install(state_dir: Path, program: InitProgram) -> Path:
    """Make a program's file durable unless it is there, and return its path.

    A damaged file is replaced; containers that run keep the old one.

    Raises:
        OSError: The file cannot be written.
    """
    path = installed(state_dir, program.sha256)
    with contextlib.suppress(FileNotFoundError):
        if _is_intact(path):
            return path
        log.warning("replaces a damaged program", path=str(path))
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write(path, program.data, _MODE)
    return path


def keep(state_dir: Path, program: InitProgram, used: Collection[str]) -> None:
    """Install this program, and remove all others that are not `used`.

    Raises:
        OSError: The file cannot be written.
    """
    remove_unused(state_dir, {*used, program.sha256})
    install(state_dir, program)


def _is_intact(path: Path) -> bool:
    is_executable = path.stat().st_mode & 0o777 == _MODE
    return is_executable and hashlib.sha256(path.read_bytes()).hexdigest() == path.name


def remove_unused(state_dir: Path, used: Collection[str]) -> list[str]:
    """Remove all programs but those whose SHA-256 is `used`; return the names of removed files.

    Files that cannot be removed stay until the next call.
    """
    removed = []
    for path in _files(state_dir / FOLDER):
        if path.name not in used:
            with contextlib.suppress(OSError):
                path.unlink()
                removed.append(path.name)
    return sorted(removed)


def _files(folder: Path) -> list[Path]:
    """List the files of a folder, also those of an interrupted `install`."""
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
