"""The start rate of an account in a region: a token bucket per pair. Pure, time as an argument."""

import math
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Bucket:
    level: float
    time: float


@dataclass(slots=True)
class StartRate:
    """Token buckets that hold at most `burst` and refill by `rate` a second."""

    rate: float
    burst: float
    _buckets: dict[tuple[str, str], _Bucket] = field(default_factory=dict)

    def take(self, account: str, location: str, now: float) -> int | None:
        """Take one start; None when taken, else the whole seconds until one is there."""
        bucket = self._buckets.setdefault((account, location), _Bucket(self.burst, now))
        bucket.level = min(self.burst, bucket.level + (now - bucket.time) * self.rate)
        bucket.time = now
        if bucket.level < 1:
            return max(1, math.ceil((1 - bucket.level) / self.rate))
        bucket.level -= 1
        return None
