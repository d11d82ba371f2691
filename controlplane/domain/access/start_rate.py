"""The start rate of an account in a region: a token bucket per pair. Pure, time as an argument."""

import math
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Bucket:
    level: float
    time: float


SWEEP = 64  # Minimum number of buckets before full ones are dropped


@dataclass(slots=True)
class StartRate:
    """Token buckets of at most `burst` that refill by `rate` a second; full ones are dropped."""

    rate: float
    burst: float
    _buckets: dict[tuple[str, str], _Bucket] = field(default_factory=dict)
    _sweep_at: int = SWEEP

    def take(self, account: str, location: str, now: float) -> int | None:
        """Take one start; None on success, else the whole seconds until one is available."""
        bucket = self._buckets.get((account, location))
        if bucket is None:
            self._sweep(now)
            bucket = self._buckets[account, location] = _Bucket(self.burst, now)
        bucket.level = self._level(bucket, now)
        bucket.time = now
        if bucket.level < 1:
            return max(1, math.ceil((1 - bucket.level) / self.rate))
        bucket.level -= 1
        return None

    def give_back(self, account: str, location: str) -> None:
        """Undo a `take`."""
        bucket = self._buckets.get((account, location))
        if bucket is not None:
            bucket.level += 1

    def _level(self, bucket: _Bucket, now: float) -> float:
        return min(self.burst, bucket.level + (now - bucket.time) * self.rate)

    def _sweep(self, now: float) -> None:
        """Drop full buckets each time that the number of buckets has doubled."""
        if len(self._buckets) < self._sweep_at:
            return
        kept = {k: b for k, b in self._buckets.items() if self._level(b, now) < self.burst}
        self._buckets = kept
        self._sweep_at = max(SWEEP, 2 * len(kept))
