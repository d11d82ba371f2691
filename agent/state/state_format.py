"""Whether this agent can read what another version has left in the state directory.

An agent that cannot does not start: it would take sessions for damaged, give away their ports, and
remove what is theirs. They keep running.
"""

import contextlib
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
