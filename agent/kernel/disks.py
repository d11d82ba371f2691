"""Free space on the host's disks, and the reserves that keep them from filling up.

A full disk loses logs and ends games that the engine still reports as running. Below the reserve
no session is started; below twice the reserve, old data is removed (see `retention`).
"""

import asyncio
import errno
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.domain.errors import DiskFullError
from agent.domain.sessions.retention import Shortage
from tiltyard.contract import MEBI
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

LARGEST_SHARE = 20
"""The reserve is at most this fraction of a disk, since it could exceed a small one."""
RESERVE_INODES = 20_000
"""Inodes reserved in addition to bytes; starting a session takes about 30 on both disks."""

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system with a folder on it. `free_inodes`: None if not limited, as with btrfs."""

    path: Path
    free_bytes: int
    reserve_bytes: int
    device: int = 0
    is_read_only: bool = False
    free_inodes: int | None = None
    reserve_inodes: int = 0

    @property
    def is_short(self) -> bool:
        """True if no session may be started."""
        return self._has_less_than(1) or self.is_read_only

    @property
    def is_low(self) -> bool:
        """True if old data must be removed."""
        return self._has_less_than(2)

    def _has_less_than(self, reserves: int) -> bool:
        inodes = math.inf if self.free_inodes is None else self.free_inodes
        return (
            self.free_bytes < reserves * self.reserve_bytes
            or inodes < reserves * self.reserve_inodes
        )

    def __str__(self) -> str:
        if self.is_read_only:
            return "nothing can be written"
        if self._has_less_than(1) and self.free_bytes >= self.reserve_bytes:
            return f"{self.free_inodes} inodes are free, {self.reserve_inodes} are reserved"
        free = self.free_bytes // MEBI
        reserve = self.reserve_bytes // MEBI
        return f"{free} MiB are free, {reserve} MiB are reserved"


def measured(path: Path, reserve_bytes: int) -> Disk:
    """Measure the file system of a folder; may raise OSError. Blocks."""
    return disk_of(path, os.statvfs(path), path.stat().st_dev, reserve_bytes)


def disk_of(path: Path, found: os.statvfs_result, device: int, reserve_bytes: int) -> Disk:
    """Convert a statvfs(2) result; if `reserve_bytes` is 0, no inodes are reserved either."""
    share = found.f_frsize * found.f_blocks // LARGEST_SHARE
    return Disk(
        path,
        found.f_frsize * found.f_bavail,
        min(reserve_bytes, share),
        device=device,
        is_read_only=bool(found.f_flag & os.ST_RDONLY),
        free_inodes=found.f_favail if found.f_files else None,
        reserve_inodes=min(RESERVE_INODES, found.f_files // LARGEST_SHARE) if reserve_bytes else 0,
    )


@dataclass(eq=False)
class Disks:
    """The disks as last measured; `reserve_bytes` 0 disables the reserves."""

    reserve_bytes: int
    state_dir: Path
    measure: Callable[[Path, int], Disk] = measured
    nothing_left: bool = field(default=False, init=False)
    """True if nothing is left to remove in favour of logs."""
    sealing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """Serialises retries to seal a log: concurrent ones might run out of space again."""
    _engine_dirs: set[Path] = field(default_factory=set, init=False)
    _image_dirs: set[Path] = field(default_factory=set, init=False)
    _seen: dict[Path, Disk] = field(default_factory=dict, init=False)
    _without_room: set[str] = field(default_factory=set, init=False)
    _room_asked: bool = field(default=False, init=False)

    def watch(self, data_root: str, image_root: str = "") -> None:
        """Measure, in addition, the disks on which the engine keeps containers and images.

        Without `image_root`, the folder `data_root` has both.
        """
        self._engine_dirs |= {Path(path) for path in (data_root, image_root) if path}
        self._image_dirs |= {Path(path) for path in [image_root or data_root] if path}

    def look(self) -> None:
        """Measure all disks. Blocks."""
        before = self.warnings
        seen = {}
        for path in sorted({self.state_dir} | self._engine_dirs):
            try:
                disk = self.measure(path, self.reserve_bytes)
            except OSError as error:
                log.debug("cannot measure a disk", path=str(path), error=str(error))
                continue
            # The systemd unit may make the engine's disk read-only for this process alone.
            own = path == self.state_dir
            seen[path] = replace(disk, is_read_only=disk.is_read_only and own)
        self._seen = seen
        for warning in set(self.warnings) - set(before):
            log.warning("disk warning", error=warning)

    @property
    def seen(self) -> tuple[Disk, ...]:
        """All disks as last measured."""
        return tuple(self._seen.values())

    @property
    def engine_free_bytes(self) -> int | None:
        """Free bytes on the engine's disks; None if unknown."""
        engine = self._engine_disks()
        return sum(disk.free_bytes for disk in engine) if engine else None

    @property
    def free_image_bytes(self) -> int | None:
        """Bytes that images may take until the engine's disks are low; None if unknown."""
        disks = self._disks_of(self._image_dirs)
        if not disks:
            return None
        return sum(max(0, disk.free_bytes - 2 * disk.reserve_bytes) for disk in disks)

    @property
    def engine_is_low(self) -> bool:
        """True if a disk of the engine is low."""
        return any(disk.is_low for disk in self._engine_disks())

    def check_images(self, expected_bytes: int = 0) -> None:
        """Raise DiskFullError if a disk of the engine is low: images must not fill it.

        `expected_bytes`: also raise it if the disks were low once images have taken that.
        """
        for disk in self._engine_disks():
            if disk.is_low:
                raise DiskFullError(str(disk.path), f"too little room for images: {disk}")
            free = self.free_image_bytes or 0
            if expected_bytes > free:
                cause = (
                    f"too little room for images: pulls may take {expected_bytes // MEBI} MiB,"
                    f" {free // MEBI} MiB are left for images"
                )
                raise DiskFullError(str(disk.path), cause)

    def _engine_disks(self) -> list[Disk]:
        return self._disks_of(self._engine_dirs)

    def _disks_of(self, folders: set[Path]) -> list[Disk]:
        """The disks of folders as last measured, each once."""
        found = {path: self._seen[path] for path in sorted(folders & self._seen.keys())}
        return list({disk.device: disk for disk in found.values()}.values())

    @property
    def short(self) -> Disk | None:
        """A disk that prevents starts, if any."""
        return next((disk for disk in self._seen.values() if disk.is_short), None)

    def lacks_room(self, internal_id: str, error: Exception) -> None:
        """Record why a log or report could not be written; a full disk requests free space."""
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno in _NO_ROOM:
            self._without_room.add(internal_id)
            self._room_asked = True

    def found_room(self, internal_id: str) -> None:
        """Record that a session no longer lacks space."""
        self._without_room.discard(internal_id)

    def take_shortage(self) -> Shortage:
        """Return and reset where space must be freed, by the last check and later requests."""
        state = self._seen.get(self.state_dir)
        engine = self._engine_disks()
        shared = state is not None and any(disk.device == state.device for disk in engine)
        logs = self._room_asked or (state is not None and state.is_low)
        containers = any(disk.is_low for disk in engine) or (shared and logs)
        self._room_asked = False
        return Shortage(containers=containers, logs=logs, shared=shared)

    @property
    def warnings(self) -> tuple[str, ...]:
        """A warning per disk that prevents starts, and one about logs that cannot be sealed."""
        short = tuple(
            f"no session is started: on the disk of {disk.path} {disk}"
            for disk in self._seen.values()
            if disk.is_short
        )
        if not (self._without_room and self.nothing_left):
            return short
        unsealed = (
            f"the logs of {len(self._without_room)} ended sessions cannot be sealed: no "
            f"space on the disk of {self.state_dir}, and nothing left to remove"
        )
        return (*short, unsealed)

    def check(self) -> None:
        """Raise DiskFullError if a disk prevents starts."""
        if disk := self.short:
            raise DiskFullError(str(disk.path), str(disk))
