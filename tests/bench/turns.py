"""Several ways of doing the same, in turn: the pace of the machine may change meanwhile."""

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")


def in_turn(
    rounds: int, ways: Mapping[str, Callable[[], T]], ready: Callable[[], object] = bool
) -> dict[str, list[T]]:
    """Do each `rounds` times, in an order that rotates, once what is measured is `ready`."""
    results: dict[str, list[T]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(rounds):
        for place in range(len(names)):
            name = names[(number + place) % len(names)]
            ready()
            results[name].append(ways[name]())
    return results


def seconds(work: Callable[[], object]) -> float:
    """Return how long some work takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
