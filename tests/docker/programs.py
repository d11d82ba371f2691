"""Programs of this machine, for images that have nothing else."""

import re
import subprocess
from pathlib import Path

from tests.support.agent.tars import Entry, folder

SHELL = "/bin/dash"


def programs(*paths: str) -> list[Entry]:
    """Programs with their libraries, at the same paths as here."""
    files: dict[str, bytes] = {}
    for path in paths:
        for each in (path, *_libraries(path)):
            files[each] = Path(each).read_bytes()
    folders = {str(parent)[1:] for path in files for parent in Path(path).parents} - {""}
    return [
        *(folder(name.encode()) for name in sorted(folders)),
        *(
            Entry(path[1:].encode(), content=content, mode=0o755)
            for path, content in files.items()
        ),
    ]


def script(path: str, text: str) -> Entry:
    """A script for SHELL."""
    return Entry(path[1:].encode(), content=f"#!{SHELL}\n{text}\n".encode(), mode=0o755)


def _libraries(path: str) -> list[str]:
    """The libraries of a program; none of one that is static."""
    listed = subprocess.run(["ldd", path], check=False, capture_output=True, text=True).stdout
    return re.findall(r"(/\S+) \(0x", listed)
