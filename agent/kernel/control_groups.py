"""The control groups of a process, by the text of its /proc/<pid>/cgroup. Pure.

cgroup v1 has a line and a mounted folder for each set of controllers, v2 one line without
controllers. A machine may have both, with each controller in one of them; v2 is then mounted in
the folder `unified`.
"""

from pathlib import Path
from typing import NamedTuple

MOUNTED = Path("/sys/fs/cgroup")
UNIFIED = ""  # In place of a controller's name: the group of cgroup v2

_FOLDERS_OF_UNIFIED = ("", "unified")


class ControlGroup(NamedTuple):
    """The group of a process for one controller, or UNIFIED for all controllers."""

    controller: str
    path: str  # Below the mounted folder of its hierarchy; empty for the root group

    def folders(self, mounted: Path = MOUNTED) -> list[Path]:
        """Return where the group may be, first the usual folder."""
        if self.controller == UNIFIED:
            return [mounted / folder / self.path for folder in _FOLDERS_OF_UNIFIED]
        return [mounted / self.controller.removeprefix("name=") / self.path]


def control_groups(text: str) -> list[ControlGroup]:
    """Parse /proc/<pid>/cgroup."""
    found = []
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        found += [ControlGroup(name, path.lstrip("/")) for name in controllers.split(",")]
    return found
