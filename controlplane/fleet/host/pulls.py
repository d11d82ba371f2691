"""Pulls of images to one host: what becomes of each, and which is made next. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from tiltyard.contract import PullProgress

MAX_PULLS = 2
"""Of one host at a time: more would only share its network and disk."""

MAX_SUSPECTS = 1
"""Of those, pulls that may well fail: a registry that hangs must not hold up others (F43)."""


class PullState(StrEnum):
    """What becomes of a pull: others on its host go first, it is made, or it is tried again."""

    QUEUED = "queued"
    PULLING = "pulling"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Pull:
    """A pull that is not over. `cause` and `failed_ms` are of the newest of its failures.

    It is not tried before `due`, in seconds of the monotonic clock.
    """

    image: str
    state: PullState = PullState.QUEUED
    progress: PullProgress = field(default_factory=PullProgress)
    failures: int = 0
    cause: str = ""
    failed_ms: int | None = None
    due: float = 0.0

    @property
    def registry(self) -> str:
        """The address of the registry that it comes from."""
        return self.image.partition("/")[0]


def suspects(pulls: Iterable[Pull]) -> frozenset[str]:
    """Give the images that have failed, or come from a registry of which another one has."""
    pulls = tuple(pulls)
    failing = {pull.registry for pull in pulls if pull.failures}
    return frozenset(pull.image for pull in pulls if pull.registry in failing)


def next_pulls(pulls: Collection[Pull], running: Collection[str], now: float) -> list[str]:
    """Give the images to pull now, beside those that are being pulled.

    Those that never failed go first, then those that failed least; among equals, who came first.
    """
    suspected = suspects(pulls)
    free = MAX_PULLS - len(running)
    free_for_suspects = MAX_SUSPECTS - sum(image in suspected for image in running)
    chosen: list[str] = []
    for pull in sorted(pulls, key=lambda pull: (pull.image in suspected, pull.failures)):
        if pull.image in running or pull.due > now:
            continue
        if len(chosen) == free:
            break
        if pull.image in suspected:
            if free_for_suspects <= 0:
                break
            free_for_suspects -= 1
        chosen.append(pull.image)
    return chosen
