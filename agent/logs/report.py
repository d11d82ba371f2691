"""The report of an ended session: its record, and the end of its log."""

import os
from pathlib import Path
from typing import NamedTuple

from agent.domain.errors import SessionLiveError
from agent.domain.session import Session
from agent.logs.reading import Followed
from agent.state.record import Records
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.tasks import first_completed

TAIL_BYTES = 2**17
"""What a report has of the log: in an answer of the API, of 1 MiB at most, a byte may take six."""
SEAL_WAIT_SECONDS = 5.0
"""How long a report right after the end waits for the log to be sealed."""


class Tail(NamedTuple):
    """The end of a log; `cut` when it is not all of it."""

    data: bytes
    cut: bool


async def read(records: Records, clock: Clock, life: Followed) -> tuple[Session, Tail | None]:
    """An ended session and the end of its log, None when the host has no log.

    Waits SEAL_WAIT_SECONDS at most for the log to be sealed.

    Raises:
        SessionLiveError: It has not ended.
    """
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
    """The last TAIL_BYTES of a log, from the beginning of a line; None when there is none.

    A line that is longer than that is cut anywhere. Blocks.
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
