"""The demand for prepared containers on a host, by shape. Pure.

A start raises the demand for its shape, a review lowers it; see `preparation`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from agent.domain.kept.preparation import MOST_CONTAINERS, Demand
from tiltyard.contract import SessionSpec, shape_key


class Demands(Mapping[str, Demand]):
    """Demands by key of their shape. Times are in monotonic seconds."""

    def __init__(self) -> None:
        self._by_key: dict[str, Demand] = {}

    def __getitem__(self, key: str) -> Demand:
        return self._by_key[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    def order(self, shapes: Iterable[SessionSpec], now: float) -> None:
        """Set the shapes that are ordered, all of them."""
        ordered = {shape_key(shape): shape for shape in shapes}
        for key, demand in self._by_key.items():
            if demand.ordered and key not in ordered:
                self._by_key[key] = replace(demand, ordered=False)
        for key, shape in ordered.items():
            demand = self._by_key.get(key) or Demand(shape, now)
            self._by_key[key] = replace(demand, ordered=True)

    def note_found(self, key: str, shape: SessionSpec, now: float) -> None:
        """Note a container that an earlier run of the agent has kept."""
        demand = self._by_key.get(key)
        known = Demand(shape, now) if demand is None else demand
        wanted = known.wanted if demand is None else known.wanted + 1
        self._by_key[key] = replace(known, last_start=now, wanted=wanted)

    def note_taken(self, key: str, now: float, *, waiting: int) -> None:
        """Note a start that took one and left `waiting`."""
        if key in self._by_key:
            self._by_key[key] = self._by_key[key].after_start(now, waiting=waiting)

    def note_missed(self, key: str, shape: SessionSpec, now: float, *, most: int) -> None:
        """Note a start that found none; at most `most` are wanted."""
        demand = self._by_key.get(key)
        if demand is None:
            self._by_key[key] = Demand(shape, now, last_start=now)
        else:
            self._by_key[key] = demand.after_miss(now, most=most)

    def forget_image(self, image: str) -> None:
        """Forget the demand for containers of an image until the next start or order."""
        for key in [key for key, each in self._by_key.items() if each.shape.image == image]:
            del self._by_key[key]

    def review(self, now: float, waiting: Mapping[str, int]) -> None:
        """Lower demands that are due, given the unused containers of each shape; drop old ones.

        The demands with the latest starts stay, at most MOST_CONTAINERS: a host has no room for
        one container each of more shapes.
        """
        for key, demand in list(self._by_key.items()):
            if demand.is_current(now):
                self._by_key[key] = demand.at_review(now, waiting=waiting.get(key, 0))
            else:
                del self._by_key[key]
        excess = len(self._by_key) - MOST_CONTAINERS
        if excess > 0:
            oldest = sorted(self._by_key, key=lambda key: self._by_key[key].last_start or 0.0)
            for key in oldest[:excess]:
                del self._by_key[key]
