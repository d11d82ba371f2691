"""The records of an agent's sessions on its disk, read while it runs."""

import shutil
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from agent.domain.sessions.session import Session
from agent.state.encoding import SESSIONS, decode_claims, newest
from agent.state.record import CLAIMS, PREPARED


def recorded_sessions(state_dir: Path) -> list[Session]:
    """Return all recorded sessions, except damaged ones; a record may be removed meanwhile."""
    journal = decode_claims((state_dir / CLAIMS).read_bytes())
    claims = {each.internal_id: each for each in journal.values() if each.claim is not None}
    kept = {path.name for path in (state_dir / PREPARED).glob("*")}
    found = {
        each.internal_id: each
        for each in journal.values()
        if each.claim is None and each.prepared in kept
    }
    for path in sorted((state_dir / "sessions").glob("*/record.json")):
        found.pop(path.parent.name, None)
        with suppress(FileNotFoundError, ValidationError):
            record = SESSIONS.validate_json(path.read_bytes())
            newer = newest(record, claims.get(record.internal_id))
            found[record.internal_id] = newer or record
    return list(found.values())


def lose_records(state_dir: Path) -> None:
    """Remove all records of sessions."""
    (state_dir / CLAIMS).write_bytes(b"")
    shutil.rmtree(state_dir / "sessions")
