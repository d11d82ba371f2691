import logging
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest

from tests.support.log_lines import read
from tests.support.read_back import Pipe, failing, log, said
from tiltyard.runtime.logging import output
from tiltyard.runtime.logging.output import LineFormatter, written


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
    assert [one[:13] for one in lines] == ["<4>level=warn", "<3>level=erro", "<6>level=info"]
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
        found = [read(one, "logfmt") for one in reading.result()]
    came = [one for one in found if one["event"] == "it came"]
    reported = [int(one["left_out"]) for one in found if one["event"] == "not read in time"]
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
        done = subprocess.run(
            [sys.executable, "-c", program], stderr=full, stdout=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stdout) == (0, b"out\n")
