"""Whether this agent may use a state directory: its format, and whose it is.

An agent that cannot read what a newer one wrote does not start: it would take sessions for
damaged, give away their ports, and remove what is theirs. They keep running. Nor does one that
root starts by hand on the directory of the service, which could not read what it would write.
"""

import contextlib
import os
import pwd
from pathlib import Path

from tiltyard.runtime.atomic_file import write

FORMAT = 1
"""Of everything in the state directory and in the labels of containers; absent is 1."""
FILE = "format"
"""In the state directory."""


class NewerStateError(RuntimeError):
    """A newer agent has run on this state directory; the text says what to do."""


def check(root: Path) -> None:
    """Check that this agent may use a state directory. Reads only; blocks.

    Raises:
        NewerStateError: A newer agent has used it.
    """
    try:
        number = int((root / FILE).read_bytes())
    except (OSError, ValueError):
        return
    if number > FORMAT:
        raise NewerStateError(
            f"a newer version has run on {root}: it has format {number}, and this agent reads up"
            f" to {FORMAT}. Start that version again, or one that is newer still. Nothing was"
            " touched, and sessions run on"
        )


def mark(root: Path) -> None:
    """Write the format of the state directory. Blocks.

    Where there is no room for that, as on a full disk, the next start does it.
    """
    with contextlib.suppress(OSError):
        write(root / FILE, b"%d\n" % FORMAT, 0o600)


def another_owner(state_dir: Path) -> str:
    """Say whose the folder is and what to do; nothing when it is ours or not there. Blocks."""
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
        f"{state_dir} belongs to {name}, who could not read what would be written there: be that"
        " user, as by `systemctl start tiltyard-agent`"
    )
