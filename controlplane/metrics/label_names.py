"""Names of applications as labels, so few that no account fills the memory of who scrapes. Pure.

Who came first keeps its label until nothing of it is left: a series that changes its name between
two scrapes would be of no use.
"""

from collections.abc import Set as AbstractSet

OTHER = "other"
MOST = 100
"""Applications with a label of their own at one time; all others share one."""

LONGEST = 128
"""Characters of a name that can be a label."""

Name = tuple[str, str]
"""An account and an application of it."""


class LabelNames:
    """Gives labels to applications and takes them back."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._named: set[Name] = set()

    def keep(self, present: AbstractSet[Name]) -> None:
        """Name those that are present and have no name yet, in order, as far as there is room."""
        self._named &= present
        for name in sorted(present - self._named):
            if len(self._named) >= self._most:
                return
            if all(len(part) <= LONGEST and part.isprintable() for part in name):
                self._named.add(name)

    def label(self, name: Name) -> Name:
        """Give the labels of an account and its application."""
        return name if name in self._named else (OTHER, OTHER)
