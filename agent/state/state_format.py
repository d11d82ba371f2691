"""Format and owner of a state directory: whether this agent may use it.

An older agent must not start on a newer format: it would take the sessions for damaged, give away
their ports and remove their containers. Nor may root start one by hand on the service's directory,
since the service could not read its files.
"""

import contextlib
import os
import pwd
from pathlib import Path

from tiltyard.runtime.atomic_file import write

FORMAT = 2  # Version of the state directory and of container labels; absent is 1
FILE = "format"  # Its file in the state directory


class NewerStateError(RuntimeError):
    """A newer agent has run on this state directory; the text has a hint."""


def check(root: Path) -> None:
    """Raise NewerStateError if a newer agent has used the state directory. Blocks."""
    try:
        number = int((root / FILE).read_bytes())
    except (OSError, ValueError):
        return
    if number > FORMAT:
        raise NewerStateError(
            f"a newer version has run on {root}: its format is {number}, this agent reads up to"
            f" {FORMAT}. Start that version or a newer one. Nothing was changed, and sessions"
            " keep running"
        )


def mark(root: Path) -> None:
    """Write the format of the state directory, best effort. Blocks."""
    with contextlib.suppress(OSError):
        write(root / FILE, b"%d\n" % FORMAT, 0o600)


def another_owner(state_dir: Path) -> str:
    """An error text with a hint if another user owns the folder, else "". Blocks."""
    try:
        owner = state_dir.stat().st_uid
    except OSError:
        return ""
    if owner == os.geteuid():
        return ""
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = f"the user {owner}"
    return (
        f"{state_dir} belongs to {name}: run as that user, as with"
        " `systemctl start tiltyard-agent`"
    )
