"""A report in its session's directory: written once at the end, read with the end of the log."""

import os
from pathlib import Path
from typing import NamedTuple

from agent.domain.errors import DiskFullError, SessionLiveError
from agent.domain.session import Session
from agent.kernel.disks import Disks
from agent.logs.reading import Followed
from agent.state.disk import disk
from agent.state.record import Records
from agent.state.report import Report, decode_report, encode_report, report_of
from tiltyard.runtime.atomic_file import write
from tiltyard.runtime.back_off import BackOff
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.first_completed import comes_first
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

TAIL_BYTES = 2**17
"""What a report has of the log: in an answer of the API, of 1 MiB at most, a byte may take six."""
SEAL_WAIT_SECONDS = 5.0
"""How long a report right after the end waits for the log to be sealed."""


class Tail(NamedTuple):
    """The end of a log; `cut` when it is not all of it."""

    data: bytes
    cut: bool


async def seal(records: Records, clock: Clock, disks: Disks, session: Session) -> None:
    """Write an ended session's report, however long that takes. One that is there stays."""
    back_off = BackOff(clock)
    while True:
        try:
            await records.run(_write, _path(records, session), report_of(session))
        except DiskFullError as error:
            disks.lacks_room(session.internal_id, error)
            log.warning("cannot seal the report", session=session.internal_id, error=str(error))
            await back_off.wait()
        else:
            return


async def read(records: Records, clock: Clock, life: Followed) -> tuple[Report, Tail | None]:
    """The report of an ended session and the end of its log, None when the host has no log.

    Waits SEAL_WAIT_SECONDS at most for the log to be sealed. Until the report is, it says what
    the record does.

    Raises:
        SessionLiveError: It has not ended.
    """
    if not life.session.state.ended:
        raise SessionLiveError(life.session.internal_id)
    sealed = life.wait_for(lambda now: now.log_sealed or now.container_removed)
    await comes_first(sealed, clock.sleep(SEAL_WAIT_SECONDS), f"seal-{life.session.internal_id}")
    session = life.session
    tail = None
    with records.kept(session.internal_id):
        report = await records.run(_read, _path(records, session))
        if session.log_sealed:
            tail = await records.run(read_tail, records.log_path(session.internal_id))
    return report or report_of(session), tail


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


def _path(records: Records, session: Session) -> Path:
    return records.directory(session.internal_id) / "report.json"


def _write(path: Path, report: Report) -> None:
    with disk(path):
        if not path.exists():
            write(path, encode_report(report), 0o600)


def _read(path: Path) -> Report | None:
    try:
        return decode_report(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.error("cannot read a report, using the record", path=str(path), error=str(error))  # noqa: TRY400 - the text says it all
        return None
