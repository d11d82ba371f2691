"""Metric labels with bounded cardinality from names that clients choose."""

from collections.abc import Set as AbstractSet

OTHER = "other"  # The shared label of all other names
MAX_NAMES = 100  # Maximum names with their own labels
LONGEST = 128  # Maximum characters of each part of a label
Name = tuple[str, ...]  # For example an application, or an account and its application


class BoundedNames:
    """Assigns labels to names. A name keeps its label while present, so that series are stable."""

    def __init__(self) -> None:
        self._named: set[Name] = set()

    def keep(self, present: AbstractSet[Name]) -> None:
        """Free the labels of names that are gone, and assign them to present names in order."""
        self._named &= present
        for name in sorted(present - self._named):
            if len(self._named) >= MAX_NAMES:
                return
            if all(len(part) <= LONGEST and part.isprintable() for part in name):
                self._named.add(name)

    def label(self, name: Name) -> Name:
        """Return the labels of a name, a value for each part."""
        return name if name in self._named else (OTHER,) * len(name)
