import logging
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.log_lines import read
from tests.support.read_back import Pipe, failing, log, said
from tiltyard.runtime.logging import output
from tiltyard.runtime.logging.events import Event, bind, unbind
from tiltyard.runtime.logging.output import AT_ONCE, LineFormatter, written


def test_writes_from_the_configured_level() -> None:
    def log_all() -> None:
        for logger in (log, logging.getLogger("lib")):
            logger.debug("d")
            logger.info("i")
            logger.warning("w")

    assert [found["event"] for found in said(log_all)] == ["i", "w", "i", "w"]


def test_line_has_the_time_except_for_journald() -> None:
    [found] = said(lambda: log.warning("it came"))
    assert len(found["time"]) == len("2026-01-01T00:00:00.000Z")
    assert found["time"].endswith("Z")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        of_journald = os.fstat(theirs.fileno())
        name = f"{of_journald.st_dev}:{of_journald.st_ino}"
        with written("info", "logfmt", journal_stream=name, descriptor=theirs.fileno()):
            log.warning("it came")
            log.error("it went")
            log.info("it stayed")
        lines = ours.recv(4096).decode().splitlines()
    assert [line[:13] for line in lines] == ["<4>level=warn", "<3>level=erro", "<6>level=info"]
    [found] = said(lambda: log.warning("it came"), journal_stream=name)
    assert "time" in found, "standard error is not the journal's"


def test_does_not_change_records_of_other_handlers(caplog: pytest.LogCaptureFixture) -> None:
    said(failing)
    [record] = caplog.records
    assert record.getMessage() == "it failed"
    assert record.filename == "read_back.py", "the file of the line that logs"
    assert "Traceback" in caplog.text
    record.exc_text = "theirs"
    assert "theirs" not in LineFormatter("logfmt", journald=False).format(record)


@mock.patch.object(output, "MOST_WAITING", 100)
@mock.patch.object(output, "LAST_SECONDS", 30.0)
def test_slow_reader_does_not_block_the_program() -> None:
    pipe = Pipe()
    with ThreadPoolExecutor(1) as pool:
        with written("info", "logfmt", descriptor=pipe.theirs):
            for _ in range(2_000):  # a pipe holds 64 KiB
                log.info("it came", error="x" * 200)
            reading = pool.submit(pipe.lines)
        os.close(pipe.theirs)
        lines = [read(line, "logfmt") for line in reading.result()]
    came = [line for line in lines if line["event"] == "it came"]
    reports = [line for line in lines if line["event"] == "not read in time"]
    reported = [int(report["left_out"]) for report in reports]
    assert 100 <= len(came) < 1_000
    assert len(came) + sum(reported) == 2_000


def test_blocked_reader_does_not_prevent_exit() -> None:
    program = (
        "from tiltyard.runtime.logging import output\n"
        "from tiltyard.runtime.logging.events import get_logger\n"
        "output.LAST_SECONDS = 0.1\n"
        "log = get_logger('x')\n"
        "with output.written('info', 'logfmt'):\n"
        "    for _ in range(1000): log.info('it came', error='x' * 200)\n"
        "print('out')\n"
    )
    ours, theirs = os.pipe()
    with os.fdopen(ours), os.fdopen(theirs, "w") as full:
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, stderr=full, stdout=subprocess.PIPE, check=False)
    assert done.returncode == 0
    assert done.stdout == b"out\n"


def a_record(event: str, *, level: int = logging.WARNING, **more: Any) -> logging.LogRecord:
    return logging.LogRecord("agent.x", level, "x.py", 1, Event(event=event, **more), (), None)


def test_passes_a_burst_and_then_one_line_a_minute() -> None:
    now = [0.0]
    limit = output.Limit({"request refused"}, lambda: now[0])

    def passed(record: logging.LogRecord) -> int | None:
        return getattr(record, "left_out", 0) if limit.filter(record) else None

    storm = [a_record("cannot", session=str(number)) for number in range(1_000)]
    assert [passed(record) for record in storm] == [0] * AT_ONCE + [None] * (1_000 - AT_ONCE)
    assert passed(a_record("something else")) == 0
    now[0] = output.INTERVAL_SECONDS
    assert [passed(a_record("cannot")) for _ in range(2)] == [1_000 - AT_ONCE, None]
    now[0] += output.INTERVAL_SECONDS * AT_ONCE
    assert [passed(a_record("cannot")) for _ in range(2)] == [1, 0]
    for _ in range(10 * AT_ONCE):
        assert passed(a_record("session started", level=logging.INFO)) == 0
    refused = [a_record("request refused", level=logging.INFO, status=404) for _ in range(50)]
    assert sum(passed(record) is not None for record in refused) == AT_ONCE
    assert passed(a_record("request refused", level=logging.INFO, status=401)) == 0


def test_level_debug_drops_nothing() -> None:
    def log_all() -> None:
        for _ in range(5 * AT_ONCE):
            log.warning("it came")

    assert len(said(log_all)) == AT_ONCE
    logging.getLogger().setLevel(logging.DEBUG)  # as by a reload
    limit = output.Limit()
    try:
        assert all(limit.filter(a_record("it came")) for _ in range(5 * AT_ONCE))
    finally:
        logging.getLogger().setLevel(logging.WARNING)


def test_limits_the_lines_of_a_library_whatever_their_text() -> None:
    limit = output.Limit()
    storm = [
        logging.LogRecord("lib", logging.WARNING, "x.py", 1, f"got {number}", (), None)
        for number in range(2 * AT_ONCE)
    ]
    assert sum(limit.filter(record) for record in storm) == AT_ONCE


def test_reports_a_line_that_a_full_pipe_did_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipe()
    take = os.write
    refused: list[bytes] = []

    def write(descriptor: int, text: bytes) -> int:
        if descriptor == pipe.theirs and not refused:
            refused.append(text)
            raise BlockingIOError
        return take(descriptor, text)

    monkeypatch.setattr("tiltyard.runtime.logging.output.os.write", write)
    with written("info", "logfmt", descriptor=pipe.theirs):
        log.info("it came")
        log.info("it went")
    os.close(pipe.theirs)
    report, last = [read(line, "logfmt") for line in pipe.lines()]
    assert report["event"] == "not read in time"
    assert report["left_out"] == "1"
    assert last["event"] == "it went"


@given(created=st.floats(min_value=0, max_value=4e9))
def test_time_is_that_of_the_record_to_the_millisecond(created: float) -> None:
    formatter = LineFormatter("logfmt", journald=False)
    record = a_record("it came")
    for moment in (created, created + 0.0004, created):
        record.created = moment
        exact = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
        expected = exact.replace("+00:00", "Z")
        assert formatter.format(record).startswith(f"time={expected} level=warning ")


def test_fields_are_those_of_the_event_then_of_the_logger_then_of_the_context() -> None:
    def log_all() -> None:
        bind(request="r", id="of the context")
        try:
            log.bind(account="a", id="of the logger").info("it came", id="s", error="e")
        finally:
            unbind("request", "id")
        log.info("it went")

    came, went = said(log_all)
    assert list(came) == ["time", "level", "event", "account", "id", "error", "request", "logger"]
    assert came["id"] == "s"
    assert list(went) == ["time", "level", "event", "logger"]
