"""Tombstones, one file each: stops that arrived before their start, which is then rejected."""

import contextlib
from pathlib import Path

from agent.state.record import Records
from tiltyard.runtime.clock import Clock, is_trusted

TOMBSTONE_SECONDS = 3600.0  # How long a stop rejects a later start
TOMBSTONES_KEPT = 10_000
"""Only the newest: starts time out in seconds, and a host has at most 1000 sessions."""


class Tombstones:
    """Recently stopped sessions, in memory and on disk."""

    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._made: dict[str, float] = {}  # Seconds since boot by internal id, oldest first

    async def load(self) -> None:
        """Load the tombstones of an earlier run of the agent.

        They count as new while the wall clock cannot be trusted, which may be after a boot.
        """
        loaded = await self._records.run(_load, self._records.tombstones_dir)
        now = self._clock.boottime()
        wall = self._clock.time()
        trusted = is_trusted(self._clock)
        # abs(): a clock that was set back must not prolong it.
        self._made = {key: now - (abs(wall - at) if trusted else 0) for key, at in loaded.items()}
        await self._remove_old()

    def __contains__(self, internal_id: object) -> bool:
        """True when a start of this session must be rejected."""
        made = self._made.get(str(internal_id))
        return made is not None and self._is_young(made)

    def note(self, internal_id: str) -> None:
        """Reject a later start, until this agent restarts."""
        self._made.pop(internal_id, None)
        self._made[internal_id] = self._clock.boottime()

    async def bury(self, internal_id: str) -> None:
        """Reject a later start, also after a restart; raises DiskFullError."""
        self.note(internal_id)
        path = self._records.tombstones_dir / internal_id
        await self._records.write(path, str(self._clock.time()).encode())
        await self._remove_old()

    async def _remove_old(self) -> None:
        young = [each for each, made in self._made.items() if self._is_young(made)]
        old = self._made.keys() - young[-TOMBSTONES_KEPT:]
        for internal_id in old:
            del self._made[internal_id]
        await self._records.remove(self._records.tombstones_dir / each for each in old)

    def _is_young(self, made: float) -> bool:
        return self._clock.boottime() - made < TOMBSTONE_SECONDS


def _load(folder: Path) -> dict[str, float]:
    """Creation times in Unix time, oldest first; unreadable files are removed."""
    made: dict[str, float] = {}
    for path in folder.iterdir():
        try:
            made[path.name] = float(path.read_text("ascii"))
        except (OSError, ValueError):
            with contextlib.suppress(OSError):
                path.unlink()
    return dict(sorted(made.items(), key=lambda each: each[1]))
