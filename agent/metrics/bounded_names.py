"""Names that others choose, as values of a label: not more of them than a bound. Pure."""

from collections.abc import Container

OTHER = "other"
"""Stands for all names over the bound, and is counted with an application of this name."""
LONGEST = 128
"""Characters; the control plane takes no longer names of applications."""


class BoundedNames:
    """The names that came first; they stay while there is something of them.

    So a series does not change its name between two scrapes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def keep(self, present: Container[str]) -> None:
        """Forget the names of which nothing is left."""
        self._known = {name for name in self._known if name in present}

    def __call__(self, name: str) -> str:
        """The name itself, or what stands for all that are too many or too long."""
        if name in self._known:
            return name
        if len(self._known) >= self._most or len(name) > LONGEST:
            return OTHER
        self._known.add(name)
        return name
