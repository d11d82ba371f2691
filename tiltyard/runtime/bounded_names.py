"""Names that others choose, as values of labels: too few to fill the memory of a scraper. Pure.

A name keeps its label until nothing of it is left, so that a series does not change its labels
between two scrapes.
"""

from collections.abc import Set as AbstractSet

OTHER = "other"
"""The label of all names without one of their own."""

MAX_NAMES = 100
"""Names with their own labels at a time."""

LONGEST = 128
"""Characters of a part of a name that can be a label."""

Name = tuple[str, ...]
"""For example an application, or an account and an application of it."""


class BoundedNames:
    """Gives labels to names and takes them back."""

    def __init__(self, most: int = MAX_NAMES) -> None:
        self._most = most
        self._named: set[Name] = set()

    def keep(self, present: AbstractSet[Name]) -> None:
        """Give labels to those that are present and have none, in order, while there are some.

        Those of names that are not present are free again.
        """
        self._named &= present
        for name in sorted(present - self._named):
            if len(self._named) >= self._most:
                return
            if all(len(part) <= LONGEST and part.isprintable() for part in name):
                self._named.add(name)

    def label(self, name: Name) -> Name:
        """Return the labels of a name, a value for each part."""
        return name if name in self._named else (OTHER,) * len(name)
