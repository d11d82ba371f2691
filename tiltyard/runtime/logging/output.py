"""Writes log records of events and libraries to standard error, one line each.

A thread does the writing, so that a blocked reader of standard error cannot block the program.
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

MOST_WAITING = 10_000  # Maximum queued lines, a few MB; further lines are dropped and counted
LAST_SECONDS = 2.0  # Time to write the queued lines at exit
AT_ONCE = 10  # Burst of lines of one event
INTERVAL_SECONDS = 60.0  # One more line of an event per interval: at most 70 in the first hour
PRIORITIES = {"critical": 2, "error": 3, "warning": 4, "info": 6, "debug": 7}
"""Syslog priorities, as sd-daemon(3) prefixes them."""


@dataclass(slots=True)
class _Event:
    left: float
    at: float
    left_out: int = 0


class Limit(logging.Filter):
    """Rate limit per warning: a burst, then one line a minute with the number `left_out`.

    Events are identified by text and status, those of libraries by the line of code, so clients
    cannot grow this table. Lower levels pass unless `limited` names the event; at level debug all
    pass.
    """

    def __init__(
        self, limited: Collection[str] = (), monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._limited = limited
        self._monotonic = monotonic
        self._events: dict[tuple[object, ...], _Event] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write a record, and set its `left_out`."""
        event_fields = record.msg if isinstance(record.msg, dict) else {}
        event = event_fields.get("event", record.lineno)
        is_limited = record.levelno >= logging.WARNING or event in self._limited
        if not is_limited or logging.getLogger().isEnabledFor(logging.DEBUG):
            return True
        now = self._monotonic()
        key = (record.name, event, event_fields.get("status"))
        seen = self._events.setdefault(key, _Event(AT_ONCE, now))
        seen.left = min(AT_ONCE, seen.left + (now - seen.at) / INTERVAL_SECONDS)
        seen.at = now
        if seen.left < 1:
            seen.left_out += 1
            return False
        seen.left -= 1
        record.left_out = seen.left_out
        seen.left_out = 0
        return True


class LineFormatter(logging.Formatter):
    """Formats a record of any logger as one line.

    With `journald`, lines begin with a priority instead of the time.
    """

    def __init__(self, form: Form, *, journald: bool) -> None:
        super().__init__()
        self._form = form
        self._journald = journald
        self._last = (-1, "")  # The last second that was formatted, with its text

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; the record is not changed."""
        event_fields = record.msg if isinstance(record.msg, Event) else {}
        event = event_fields["event"] if event_fields else record.getMessage()
        level = record.levelname.lower()
        fields: dict[str, object] = {} if self._journald else {"time": self._time(record.created)}
        fields |= {"level": level, "event": event, **event_fields, "logger": record.name}
        if left_out := getattr(record, "left_out", 0):
            fields["left_out"] = left_out
        if record.exc_info or record.stack_info:
            fields |= _traceback(record)
        text = line(fields, self._form)
        return f"<{PRIORITIES.get(level, 6)}>{text}" if self._journald else text

    def _time(self, created: float) -> str:
        """Format a wall time in UTC with milliseconds."""
        second = int(created)
        milliseconds = round((created - second) * 1_000_000) // 1_000
        if milliseconds == 1_000:
            second += 1
            milliseconds = 0
        known, text = self._last
        if second != known:
            text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            self._last = second, text
        return f"{text}.{milliseconds:03}Z"


def _traceback(record: logging.LogRecord) -> dict[str, object]:
    trace = [record.stack_info or ""]
    if record.exc_info and record.exc_info[1] is not None:
        trace += traceback.format_exception(record.exc_info[1])
    return {EXCEPTION: "".join(trace)} if any(trace) else {}


class LineWriter(logging.Handler):
    """Writes lines on its own thread."""

    def __init__(self, descriptor: int, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._descriptor = descriptor
        # SimpleQueue is the only reentrant queue: a finalizer may log during a put.
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._dropped = 0  # changed only under the handler's lock
        self._unwritten = 0  # changed only by the thread
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record's line, or drop and count it if the queue is full."""
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001 - a library's message and arguments may not match
            text = self.format(_own_record(record.levelno, "a record cannot be written", record))
        if self._lines.qsize() < MOST_WAITING:
            self._lines.put(text)
        else:
            self._dropped += 1

    def close(self) -> None:
        """Write the queued lines, for at most LAST_SECONDS. Idempotent."""
        self._lines.put(None)
        self._thread.join(LAST_SECONDS)
        super().close()

    def _write_all(self) -> None:
        reported = 0
        while (text := self._lines.get()) is not None:
            self._write(text)
            if left_out := self._dropped + self._unwritten - reported:
                reported += left_out
                record = _own_record(logging.WARNING, "not read in time")
                record.left_out = left_out
                self._write(self.format(record))

    def _write(self, text: str) -> None:
        rest = f"{text}\n".encode()
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:  # closed by the reader, or full and non-blocking
            self._unwritten += 1


@contextmanager
def written(
    level: str,
    form: Form,
    *,
    journal_stream: str = "",
    limited: Collection[str] = (),
    descriptor: int = 2,
) -> Iterator[None]:
    """Write the log while the context is active, rate-limited by `Limit`.

    `journal_stream`: value of JOURNAL_STREAM; journald's format is used only if `descriptor` is
    still that file. `limited`: rate-limited events below warning, which clients can cause.
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
