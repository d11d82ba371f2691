"""Whether the state directory is another user's: then the agent does not start.

An agent that root starts by hand, where the service runs as a user of its own, would leave records
that the service cannot read, and so sessions that it cannot keep.
"""

import os
import pwd
from pathlib import Path


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
