"""The delays of retries to start things that a host keeps, such as standbys. Pure.

`RetryDelays` stores by key the time of the next retry and the cause of the failure, for an owner
that looks at them. `tiltyard.runtime.back_off.BackOff` waits, with jitter, within one task.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from agent.domain.sessions import restarts


@dataclass(frozen=True, slots=True)
class RetryDelay:
    """The delay of a retry, and the cause of the failure; `until` is in monotonic seconds."""

    cause: str
    delay: float = 0.0
    until: float = 0.0


def delay_after_failure(before: RetryDelay | None, cause: str, now: float) -> RetryDelay:
    """Return the delay after a failure: 1 s, then doubled; failures during it do not count."""
    if before is not None and now < before.until:
        return before
    lasted = now - before.until if before is not None else 0.0
    delay = restarts.next_delay(before.delay if before is not None else 0.0, lasted)
    return RetryDelay(cause, delay, now + delay)


class RetryDelays:
    """The retry delays of all keys. Times are in monotonic seconds."""

    def __init__(self) -> None:
        self._by_key: dict[str, RetryDelay] = {}

    def note(self, key: str, cause: str, now: float) -> None:
        """Note a failure."""
        self._by_key[key] = delay_after_failure(self._by_key.get(key), cause, now)

    def note_success(self, key: str) -> None:
        """Note a success: the cause of the last failure is forgotten, unlike the delay."""
        if key in self._by_key:
            self._by_key[key] = replace(self._by_key[key], cause="")

    def forget(self, key: str) -> None:
        """Forget the failures of a key, which has changed."""
        self._by_key.pop(key, None)

    def keep(self, keys: Collection[str], now: float) -> None:
        """Forget the failures of all other keys whose delay has ended."""
        self._by_key = {
            key: found for key, found in self._by_key.items() if key in keys or now < found.until
        }

    def held_back(self, now: float) -> Collection[str]:
        """Return the keys that must wait."""
        return {key for key, found in self._by_key.items() if now < found.until}

    def causes(self, now: float) -> Mapping[str, str]:
        """Return the causes of recent failures that no success has followed, by key."""
        recent = now - restarts.STEADY_SECONDS
        return {
            key: found.cause
            for key, found in self._by_key.items()
            if found.cause and found.until > recent
        }

    def next_end(self, now: float) -> float:
        """Return the time at which the next delay ends; infinite if no key waits."""
        ends = (found.until for found in self._by_key.values() if found.until > now)
        return min(ends, default=math.inf)
