"""Writes log records, of events and of libraries, as one line each to standard error.

A thread does the writing: who reads standard error may stand still, and the program must not.
"""

import logging
import os
import queue
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from tiltyard.runtime.logging.events import Event
from tiltyard.runtime.logging.line import EXCEPTION, Form, line

MOST_WAITING = 10_000
"""Lines that wait for their reader, some MB; those that come then are counted and left out."""
LAST_SECONDS = 2.0
"""How long the last lines may take when the program ends."""
AT_ONCE = 10
"""Lines of one event that may come together."""
INTERVAL_SECONDS = 60.0
"""After which one more may come: 70 lines in an hour that knows nothing else."""
PRIORITIES = {"critical": 2, "error": 3, "warning": 4, "info": 6, "debug": 7}
"""Of syslog, as sd-daemon(3) has them before a line."""


@dataclass(slots=True)
class _Event:
    left: float
    at: float
    left_out: int = 0


class Limit(logging.Filter):
    """Lets a few of each warning through, then one a minute that has `left_out` of them.

    Events are identified by their constant text and a status, regardless of other fields; those of
    libraries by the line of code. So clients cannot control how many are remembered. What
    is no warning passes, unless `limited` names it, and at level debug everything does.
    """

    def __init__(
        self, limited: Collection[str] = (), monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._limited = limited
        self._monotonic = monotonic
        self._events: dict[tuple[object, ...], _Event] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is written; one that is has the number of those before it."""
        said = record.msg if isinstance(record.msg, dict) else {}
        event = said.get("event", record.lineno)
        is_limited = record.levelno >= logging.WARNING or event in self._limited
        if not is_limited or logging.getLogger().isEnabledFor(logging.DEBUG):
            return True
        now = self._monotonic()
        key = (record.name, event, said.get("status"))
        seen = self._events.setdefault(key, _Event(AT_ONCE, now))
        seen.left = min(AT_ONCE, seen.left + (now - seen.at) / INTERVAL_SECONDS)
        seen.at = now
        if seen.left < 1:
            seen.left_out += 1
            return False
        seen.left -= 1
        record.left_out, seen.left_out = seen.left_out, 0
        return True


class LineFormatter(logging.Formatter):
    """Writes a record as one line, of any logger.

    With `journald` the line begins with its priority and has no time: the journal has its own.
    """

    def __init__(self, form: Form, *, journald: bool) -> None:
        super().__init__()
        self._form = form
        self._journald = journald

    def format(self, record: logging.LogRecord) -> str:
        """Give the line; the record is left as it was, for other handlers."""
        said = record.msg if isinstance(record.msg, Event) else {}
        event = said["event"] if said else record.getMessage()
        level = record.levelname.lower()
        fields = {"level": level, "event": event, **said, "logger": record.name}
        if left_out := getattr(record, "left_out", 0):
            fields["left_out"] = left_out
        trace = [record.stack_info or ""]
        if record.exc_info and record.exc_info[1] is not None:
            trace += traceback.format_exception(record.exc_info[1])
        if any(trace):
            fields[EXCEPTION] = "".join(trace)
        if self._journald:
            return f"<{PRIORITIES.get(level, 6)}>{line(fields, self._form)}"
        return line({"time": _iso(record.created), **fields}, self._form)


class LineWriter(logging.Handler):
    """Writes lines on its own thread, so that a slow reader blocks no logger."""

    def __init__(self, descriptor: int, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._descriptor = descriptor
        # Of all queues this one alone may be used by a finalizer while it is being used.
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._left_out = 0
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record's line, or count it where too many wait."""
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001 - of another's message and arguments
            text = self.format(_own_record(record.levelno, "a record cannot be written", record))
        if self._lines.qsize() < MOST_WAITING:
            self._lines.put(text)
        else:
            self._left_out += 1

    def close(self) -> None:
        """Write what waits, as far as its reader takes it in time. Idempotent."""
        self._lines.put(None)
        self._thread.join(LAST_SECONDS)
        super().close()

    def _write_all(self) -> None:
        while (text := self._lines.get()) is not None:
            self._write(text)
            if self._left_out:
                record = _own_record(logging.WARNING, "not read in time")
                record.left_out, self._left_out = self._left_out, 0
                self._write(self.format(record))

    def _write(self, text: str) -> None:
        rest = f"{text}\n".encode()
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:  # the reader has closed it, or is full and does not block
            self._left_out += 1


@contextmanager
def written(
    level: str,
    form: Form,
    *,
    journal_stream: str = "",
    limited: Collection[str] = (),
    descriptor: int = 2,
) -> Iterator[None]:
    """Write what is logged meanwhile, from a level on; a storm of one event is cut short.

    `journal_stream` names the file that systemd gave the program for its log, as JOURNAL_STREAM
    does; whether standard error is still that file is looked at. `limited` are events that are no
    warnings and come as often as callers like.
    """
    found = os.fstat(descriptor)
    journald = journal_stream == f"{found.st_dev}:{found.st_ino}"
    writer = LineWriter(descriptor, LineFormatter(form, journald=journald))
    writer.addFilter(Limit(limited))
    root = logging.getLogger()
    before = root.level
    root.addHandler(writer)
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)
    try:
        yield
    finally:
        logging.captureWarnings(capture=False)
        root.setLevel(before)
        root.removeHandler(writer)
        writer.close()


def _own_record(
    level: int, event: str, about: logging.LogRecord | None = None
) -> logging.LogRecord:
    name = __name__ if about is None else about.name
    return logging.LogRecord(name, level, __file__, 0, Event(event=event), (), None)


def _iso(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
