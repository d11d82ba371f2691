"""Whether this agent can read what another version has left in the state directory.

`format` there is the number of all that has none of its own: which files there are, tombstones,
marks of stops, the identity. An agent that cannot read what a newer one wrote does not start: it
would take sessions for damaged, give away their ports, and remove what is theirs. They run on.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path

from agent.domain.pools import WarmPool
from agent.domain.session import Drain, Session
from agent.state.versioned_json import Envelope, NewerFormatError
from tiltyard.runtime.atomic_file import write

FORMAT = 1
"""Of the state directory; absent is 1."""
FILE = "format"
"""In the state directory."""

RECORDS = Envelope("session", Session)
"""The content of record.json, and of the label that a container has of it."""
DRAINS = Envelope("drain", Drain)
"""The content of drain.json."""
POOLS = Envelope("pool", WarmPool)
"""The content of a file below pools/."""


class NewerStateError(RuntimeError):
    """A newer agent has run on this state directory; the text says what to do."""


def check(root: Path) -> None:
    """Check that this agent may use a state directory. Reads only; blocks.

    What is damaged or cannot be read is for those who need it.

    Raises:
        NewerStateError: A newer agent has used it.
    """
    _check(root, root / FILE, _format_of_directory)
    _check(root, root / "drain.json", DRAINS.format_of)
    for path in (root / "pools").glob("*.json"):
        _check(root, path, POOLS.format_of)
    for path in (root / "sessions").glob("*/record.json"):
        _check(root, path, RECORDS.format_of)


def mark(root: Path) -> None:
    """Write the format of the state directory. Blocks.

    Where there is no room for that, as on a full disk, the next start says it.
    """
    path, text = root / FILE, b"%d\n" % FORMAT
    with contextlib.suppress(OSError):
        if not path.exists() or path.read_bytes() != text:
            write(path, text, 0o600)


def _check(root: Path, path: Path, format_of: Callable[[bytes], int]) -> None:
    try:
        format_of(path.read_bytes())
    except NewerFormatError as error:
        raise NewerStateError(
            f"a newer version has run on {root}: {error} ({path}). Start that version again, or"
            " one that is newer still. Nothing was touched, and sessions run on"
        ) from error
    except (OSError, ValueError):
        return


def _format_of_directory(text: bytes) -> int:
    number = int(text)
    if number > FORMAT:
        raise NewerFormatError("the state directory", number, FORMAT)
    return number
