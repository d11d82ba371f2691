"""The report of an ended session: its record and the tail of its log."""

import os
from pathlib import Path
from typing import NamedTuple

from agent.domain.errors import SessionLiveError
from agent.domain.sessions.session import Session
from agent.logs.reading import Followed
from agent.state.record import Records
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.tasks import first_completed

TAIL_BYTES = 2**17
"""Bytes of the log in a report: each may take six in an API answer of at most 1 MiB."""
SEAL_WAIT_SECONDS = 5.0  # Maximum wait for the log to be sealed


class Tail(NamedTuple):
    """The end of a log; `cut` if the beginning is missing."""

    data: bytes
    cut: bool


async def read(records: Records, clock: Clock, life: Followed) -> tuple[Session, Tail | None]:
    """Return an ended session and its log tail, if any; SessionLiveError if it is live."""
    if not life.session.state.ended:
        raise SessionLiveError(life.session.internal_id)
    sealed = life.wait_for(lambda now: now.log_sealed or now.container_removed)
    await first_completed(
        sealed, clock.sleep(SEAL_WAIT_SECONDS), f"seal-{life.session.internal_id}"
    )
    session = life.session
    if not session.log_sealed:
        return session, None
    with records.kept(session.internal_id):
        return session, await records.run(read_tail, records.log_path(session.internal_id))


def read_tail(path: Path) -> Tail | None:
    """Read the last TAIL_BYTES of a log; None if there is none. Blocks.

    The tail begins with a whole line, unless that line is longer than TAIL_BYTES.
    """
    try:
        with path.open("rb") as file:
            begin = max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES)
            if begin == 0:
                file.seek(0)
                return Tail(file.read(), cut=False)
            file.seek(begin - 1)
            before = file.readline(TAIL_BYTES)
            if not before.endswith(b"\n"):
                file.seek(begin)
            return Tail(file.read(TAIL_BYTES), cut=True)
    except FileNotFoundError:
        return None
