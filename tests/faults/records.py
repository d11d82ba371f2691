"""What an agent has on its disk of its sessions, read beside it."""

from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from agent.domain.session import Session
from agent.state.encoding import SESSIONS, decode_claims, newest
from agent.state.record import CLAIMS


def recorded_sessions(state_dir: Path) -> list[Session]:
    """Every session that is recorded now, but damaged ones; one may go while this looks."""
    found = []
    claimed = decode_claims((state_dir / CLAIMS).read_bytes())
    for path in sorted((state_dir / "sessions").glob("*/record.json")):
        with suppress(FileNotFoundError, ValidationError):
            record = SESSIONS.validate_json(path.read_bytes())
            found.append(newest(record, claimed.get(record.internal_id)) or record)
    return found
