"""The disks of a host, which must not fill up: what is free on them, and whether that is enough.

A full disk loses logs, and ends games that the engine then calls running (M12). So below a reserve
no session is started, and below twice the reserve ended containers go, the oldest first.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent.errors import DiskFull
from agent.sessions.session import MEBIBYTE

log = logging.getLogger(__name__)

LARGEST_SHARE = 20
"""The reserve is at most one part in so many of a disk: on a small one it would be all of it."""


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system, by a folder on it; `reserve_bytes` of it shall be free."""

    path: Path
    free_bytes: int
    reserve_bytes: int

    @property
    def is_short(self) -> bool:
        """True when no session may be started."""
        return self.free_bytes < self.reserve_bytes

    @property
    def is_low(self) -> bool:
        """True when what can be spared shall go."""
        return self.free_bytes < 2 * self.reserve_bytes

    def __str__(self) -> str:
        free, reserve = self.free_bytes // MEBIBYTE, self.reserve_bytes // MEBIBYTE
        return f"{free} MiB are free, and {reserve} MiB shall be"


def measured(path: Path, reserve_bytes: int) -> Disk:
    """Look at the file system of a folder. Blocks; raises OSError."""
    found = os.statvfs(path)
    share = found.f_frsize * found.f_blocks // LARGEST_SHARE
    return Disk(path, found.f_frsize * found.f_bavail, min(reserve_bytes, share))


class Disks:
    """What was seen of the disks at the last look; `reserve_bytes` of 0 asks for nothing."""

    def __init__(
        self,
        reserve_bytes: int,
        state_dir: Path,
        measure: Callable[[Path, int], Disk] = measured,
    ) -> None:
        self._reserve_bytes = reserve_bytes
        self._paths = {state_dir}
        self._measure = measure
        self._seen: tuple[Disk, ...] = ()

    def watch(self, path: str) -> None:
        """Look at this folder's disk, too: where the engine has its containers."""
        if path:
            self._paths.add(Path(path))

    def look(self) -> bool:
        """Measure all of them; True when what is told of them changed. Blocks."""
        before, seen = self.warnings, []
        for path in sorted(self._paths):
            try:
                seen.append(self._measure(path, self._reserve_bytes))
            except OSError as error:
                log.debug("cannot look at the disk of %s: %s", path, error)
        self._seen = tuple(seen)
        for warning in set(self.warnings) - set(before):
            log.warning("%s", warning)
        return bool(self.warnings) != bool(before)

    @property
    def are_low(self) -> bool:
        """True when what can be spared shall go."""
        return any(disk.is_low for disk in self._seen)

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence for each disk that starts are refused for."""
        return tuple(
            f"no session is started: on the disk of {disk.path} {disk}"
            for disk in self._seen
            if disk.is_short
        )

    def check(self) -> None:
        """DiskFull when there is too little room for another session."""
        for disk in self._seen:
            if disk.is_short:
                raise DiskFull(str(disk.path), str(disk))
