"""The back-off of something that a host keeps and that fails to start. Pure."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from agent.domain.sessions import restarts


@dataclass(frozen=True, slots=True)
class Setback:
    """A back-off and its cause; `until` is in monotonic seconds."""

    cause: str
    delay: float = 0.0
    until: float = 0.0


def set_back(before: Setback | None, cause: str, now: float) -> Setback:
    """The back-off after a failure: 1 s, doubled each time; failures during it do not count."""
    if before is not None and now < before.until:
        return before
    lasted = now - before.until if before is not None else 0.0
    delay = restarts.next_delay(before.delay if before is not None else 0.0, lasted)
    return Setback(cause, delay, now + delay)


class Setbacks:
    """Back-offs by the key of what failed. Times are in monotonic seconds."""

    def __init__(self) -> None:
        self._by_key: dict[str, Setback] = {}

    def note(self, key: str, cause: str, now: float) -> None:
        """Note a failure."""
        self._by_key[key] = set_back(self._by_key.get(key), cause, now)

    def note_success(self, key: str) -> None:
        """Note that what had failed works: its cause counts no more, unlike the delay."""
        if key in self._by_key:
            self._by_key[key] = replace(self._by_key[key], cause="")

    def forget(self, key: str) -> None:
        """Forget the failures of a key, which has changed."""
        self._by_key.pop(key, None)

    def keep(self, keys: Collection[str], now: float) -> None:
        """Forget the failures of all other keys whose back-off has ended."""
        self._by_key = {
            key: found for key, found in self._by_key.items() if key in keys or now < found.until
        }

    def held_back(self, now: float) -> Collection[str]:
        """The keys that must wait."""
        return {key for key, found in self._by_key.items() if now < found.until}

    def causes(self, now: float) -> Mapping[str, str]:
        """The cause of each failure that is not long ago and not followed by a success."""
        recent = now - restarts.STEADY_SECONDS
        return {
            key: found.cause
            for key, found in self._by_key.items()
            if found.cause and found.until > recent
        }

    def next_end(self, now: float) -> float:
        """When the next back-off ends; infinite if there is none."""
        ends = (found.until for found in self._by_key.values() if found.until > now)
        return min(ends, default=math.inf)
