"""What is on a disk after its power was cut, from a log of what was done to it (`disk_log.c`).

What was synced is there. What was not may be there or not, each write for itself and sector by
sector; a name is there for certain once its folder was synced after it was made.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from random import Random

SECTOR = 512
_HEADER = struct.Struct("=IIQQ")


class Kind(IntEnum):
    """What was done; as `disk_log.c` has them."""

    WRITE = 0
    TRUNCATE = 1
    SYNC = 2
    CREATE = 3
    REMOVE = 4


@dataclass(frozen=True, slots=True)
class Deed:
    """One thing done to a file, or to the folder, whose name is ""."""

    kind: Kind
    name: str
    offset: int = 0
    data: bytes = b""


def read_log(path: Path) -> Iterator[Deed]:
    """Read all that was done, in its order."""
    log, at = path.read_bytes(), 0
    while at < len(log):
        kind, name_size, offset, size = _HEADER.unpack_from(log, at)
        at += _HEADER.size
        name, data = log[at : at + name_size], log[at + name_size : at + name_size + size]
        at += name_size + size
        yield Deed(Kind(kind), name.decode(), offset, data)


Survives = Callable[[], bool]
"""Tells of a sector, of a change of a size, or of all names, whether it was written in time."""


def nothing() -> bool:
    """Lose all that was not synced."""
    return False


def everything() -> bool:
    """Lose nothing."""
    return True


def by(chance: Random) -> Survives:
    """Lose half of it."""
    return lambda: chance.random() < 0.5


@dataclass(eq=False, slots=True)
class _File:
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
        first, last = max(begin, deed.offset), min(begin + SECTOR, end)
        if survives():
            _resize(content, max(len(content), last))
            content[first:last] = deed.data[first - deed.offset : last - deed.offset]


def _resize(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))


class Disk:
    """One folder: its files as programs see them, and as they are after a cut."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self._synced: dict[str, _File] = {}

    def do(self, deed: Deed) -> None:
        """Do one thing."""
        match deed.kind:
            case Kind.CREATE:
                self._files[deed.name] = _File()
            case Kind.REMOVE:
                del self._files[deed.name]
            case Kind.SYNC if not deed.name:
                self._synced = dict(self._files)
            case Kind.SYNC:
                self._files[deed.name].sync()
            case _:
                self._files[deed.name].since.append(deed)

    def after_a_cut(self, survives: Survives) -> dict[str, bytes]:
        """Each file's content."""
        files = self._files if survives() else self._synced
        return {name: bytes(file.after(survives)) for name, file in files.items()}
