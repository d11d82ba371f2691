"""What an agent has on its disk of its sessions, read beside it."""

from contextlib import suppress
from pathlib import Path

from agent.domain.session import Session
from agent.state.record import decode_session


def recorded_sessions(state_dir: Path) -> list[Session]:
    """Every session that is recorded now; one may go while this looks."""
    found = []
    for path in sorted((state_dir / "sessions").glob("*/record.json")):
        with suppress(FileNotFoundError):
            found.append(decode_session(path.read_bytes()))
    return found
