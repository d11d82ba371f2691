"""The back-off of something that a host keeps and that fails to start. Pure."""

from dataclasses import dataclass

from agent.domain import restarts


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
