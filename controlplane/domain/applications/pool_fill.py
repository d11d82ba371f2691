"""Finds warm pools that are full, or lack standbys for longer than a replacement takes. Pure."""

from collections.abc import Collection
from typing import NamedTuple

SHORT_AFTER = 10.0  # Seconds for which a pool lacks standbys before it counts as short


class PoolFill(NamedTuple):
    """A pool that has become full or short: `ready` of `size` standbys can be claimed."""

    pool_id: str
    is_full: bool
    size: int
    ready: int


class PoolFills:
    """Follows how many standbys of each pool can be claimed."""

    def __init__(self) -> None:
        self._short_since: dict[str, float] = {}
        self._written: dict[str, tuple[int, bool]] = {}
        """The revision and the state of each pool in the log of events."""

    @property
    def pending(self) -> Collection[str]:
        """The pools that may become short as time passes."""
        return self._short_since.keys()

    def look(
        self, pool_id: str, revision: int, *, size: int, ready: int, now: float
    ) -> PoolFill | None:
        """Return the state of a pool if the log does not have it; `now` is monotonic."""
        is_full = ready >= size
        if is_full:
            self._short_since.pop(pool_id, None)
        elif now - self._short_since.setdefault(pool_id, now) < SHORT_AFTER:
            return None
        if self._written.get(pool_id) == (revision, is_full):
            return None
        return PoolFill(pool_id, is_full, size, ready)

    def note_written(self, fill: PoolFill, revision: int) -> None:
        """Note that the log has a state."""
        self._written[fill.pool_id] = (revision, fill.is_full)

    def forget(self, pool_id: str) -> None:
        """Forget a pool that keeps no standbys, or is gone."""
        self._short_since.pop(pool_id, None)
        self._written.pop(pool_id, None)
