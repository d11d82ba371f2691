"""Alternates between the measured variants, since the machine's speed may change."""

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")


def in_turn(
    rounds: int, ways: Mapping[str, Callable[[], T]], ready: Callable[[], object] = bool
) -> dict[str, list[T]]:
    """Run each variant `rounds` times, in rotating order, each after `ready` returns."""
    results: dict[str, list[T]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(rounds):
        for place in range(len(names)):
            name = names[(number + place) % len(names)]
            ready()
            results[name].append(ways[name]())
    return results


def seconds(work: Callable[[], object]) -> float:
    """Return the duration of `work`."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
