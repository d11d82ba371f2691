"""The content of a disk after a power cut, from a log of its operations (`disk_log.c`).

Synced data survives. Each sector of an unsynced write may be lost by itself. A name survives once
its folder was synced after its creation or rename, and if that folder's own name survives.
"""

import os
import struct
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from random import Random

import pytest

from tests.demo_game import compiled
from tests.support.harness import ROOT

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
"""The environment of test programs, which are run with `python -m`."""
SECTOR = 512
_HEADER = struct.Struct("=IIQQ")


class Kind(IntEnum):
    """The kind of an operation, as in `disk_log.c`."""

    WRITE = 0
    TRUNCATE = 1
    SYNC = 2
    CREATE = 3
    REMOVE = 4
    MKDIR = 5
    RENAME = 6


@dataclass(frozen=True, slots=True)
class Deed:
    """An operation on a file or folder below the logged folder, whose own name is "".

    `data` is the written data, or the new name of a rename.
    """

    kind: Kind
    name: str
    offset: int = 0
    data: bytes = b""


def read_log(path: Path) -> Iterator[Deed]:
    """Read all operations in order."""
    log = path.read_bytes()
    at = 0
    while at < len(log):
        kind, name_size, offset, size = _HEADER.unpack_from(log, at)
        at += _HEADER.size
        name = log[at : at + name_size]
        data = log[at + name_size : at + name_size + size]
        at += name_size + size
        yield Deed(Kind(kind), name.decode(), offset, data)


Survives = Callable[[], bool]
"""Returns whether a sector, a size or all names were written before the cut."""


def nothing() -> bool:
    """Lose everything that was not synced."""
    return False


def everything() -> bool:
    """Lose nothing."""
    return True


def by(chance: Random) -> Survives:
    """Lose a random half."""
    return lambda: chance.random() < 0.5


@dataclass(eq=False, slots=True)
class _File:
    is_folder: bool = False
    synced: bytearray = field(default_factory=bytearray)
    since: list[Deed] = field(default_factory=list)

    def sync(self) -> None:
        self.synced = self.after(everything)
        self.since.clear()

    def after(self, survives: Survives) -> bytearray:
        content = bytearray(self.synced)
        for deed in self.since:
            _do(deed, content, survives)
        return content


def _do(deed: Deed, content: bytearray, survives: Survives) -> None:
    if deed.kind is Kind.TRUNCATE:
        if survives():
            _resize(content, deed.offset)
        return
    end = deed.offset + len(deed.data)
    for begin in range(deed.offset - deed.offset % SECTOR, end, SECTOR):
        first = max(begin, deed.offset)
        last = min(begin + SECTOR, end)
        if survives():
            _resize(content, max(len(content), last))
            content[first:last] = deed.data[first - deed.offset : last - deed.offset]


def _resize(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))


class Disk:
    """A folder: its content as programs see it, and as after a cut."""

    def __init__(self) -> None:
        self._files = {"": _File(is_folder=True)}
        self._synced = dict(self._files)

    def do(self, deed: Deed) -> None:
        """Apply an operation."""
        match deed.kind:
            case Kind.CREATE:
                self._files[deed.name] = _File()
            case Kind.REMOVE:
                del self._files[deed.name]
            case Kind.MKDIR:
                self._files[deed.name] = _File(is_folder=True)
            case Kind.RENAME:
                self._files[deed.data.decode()] = self._files.pop(deed.name)
            case Kind.SYNC if self._files[deed.name].is_folder:
                self._synced = {
                    name: file
                    for files, is_new in ((self._synced, False), (self._files, True))
                    for name, file in files.items()
                    if (bool(name) and _folder_of(name) == deed.name) is is_new
                }
            case Kind.SYNC:
                self._files[deed.name].sync()
            case _:
                self._files[deed.name].since.append(deed)

    def after_a_cut(self, survives: Survives) -> dict[str, bytes | None]:
        """The content of each file by name; None of a folder."""
        files = self._files if survives() else self._synced
        return {
            name: None if file.is_folder else bytes(file.after(survives))
            for name, file in files.items()
            if name and all(above in files for above in _folders_of(name))
        }


def _folder_of(name: str) -> str:
    return name.rpartition("/")[0]


def _folders_of(name: str) -> Iterator[str]:
    while name := _folder_of(name):
        yield name


ACKNOWLEDGED = "acknowledged"
"""The logged standard output of a program, in the log of its file operations."""


@pytest.fixture(scope="session")
def disk_log() -> Path:
    """The preloaded library that logs the file operations of a process."""
    return compiled(Path(__file__).with_name("disk_log.c"), "-shared", "-fPIC")


def logged(library: Path, folder: Path, command: Sequence[str]) -> list[Deed]:
    """Run a program; return its operations below `folder`/state, and its output, in order."""
    state = folder / "state"
    log = folder / "log"
    state.mkdir(parents=True)
    preload = {"LD_PRELOAD": library, "DISK_LOG": log, "DISK_LOG_FOLDER": state}
    with (state / ACKNOWLEDGED).open("wb") as output:
        environment = ENVIRONMENT | {name: str(path) for name, path in preload.items()}
        subprocess.run(command, env=environment, stdout=output, check=True, timeout=50)
    return list(read_log(log))


def cuts(
    deeds: Sequence[Deed], at: Iterable[int], survives: Survives
) -> Iterator[tuple[list[str], dict[str, bytes | None]]]:
    """Yield the output so far, and the files after a cut, before each of these operations."""
    disk = Disk()
    said = ""
    wanted = set(at)
    for number, deed in enumerate(deeds):
        if number in wanted:
            yield said.splitlines(), disk.after_a_cut(survives)
        if deed.name == ACKNOWLEDGED:
            said += deed.data.decode()
        else:
            disk.do(deed)


def put(files: Mapping[str, bytes | None], folder: Path) -> None:
    """Write the files and folders that a cut has left into a folder."""
    folder.mkdir(parents=True)
    for name, content in files.items():
        path = folder / name
        if content is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
