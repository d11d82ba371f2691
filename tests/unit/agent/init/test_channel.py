"""The agent's end of a channel, over FIFOs of this machine."""

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.init.channel import (
    LOOK_BYTES,
    REPORT,
    START,
    ReportReader,
    make_channel,
    opened_reports,
    send,
)
from agent.init.messages import Ended, Executed, Report, Waiting
from tests.support.agent.hosts import until

LONG = 60.0
"""Seconds that do not pass."""
LARGE = bytes(range(256)) * 4096
"""More than a FIFO holds."""


@pytest.fixture
def channel(tmp_path: Path) -> Path:
    folder = tmp_path / ".init"
    make_channel(folder)
    return folder


@pytest.fixture
def writer(channel: Path) -> Iterator[int]:
    """The end of the reports that an init holds."""
    descriptor = os.open(channel / REPORT, os.O_RDWR | os.O_NONBLOCK)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def reader(channel: Path) -> Iterator[int]:
    """The end of hand-overs that an init holds."""
    descriptor = os.open(channel / START, os.O_RDONLY | os.O_NONBLOCK)
    yield descriptor
    os.close(descriptor)


def mode_of(path: Path) -> str:
    return stat.filemode(path.stat().st_mode)


def descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


class TestFiles:
    def test_containers_read_one_fifo_and_write_the_other(self, channel: Path) -> None:
        assert mode_of(channel) == "drwxr-xr-x"
        assert mode_of(channel / START) == "prw-r--r--"
        assert mode_of(channel / REPORT) == "prw-rw-rw-"

    def test_modes_do_not_depend_on_the_umask(self, tmp_path: Path) -> None:
        before = os.umask(0o077)
        try:
            make_channel(tmp_path / "other")
        finally:
            os.umask(before)
        assert mode_of(tmp_path / "other") == "drwxr-xr-x"
        assert mode_of(tmp_path / "other" / REPORT) == "prw-rw-rw-"

    def test_a_channel_that_was_made_in_part_is_completed(self, tmp_path: Path) -> None:
        folder = tmp_path / "part"
        folder.mkdir(0o700)
        os.mkfifo(folder / START, 0o600)
        make_channel(folder)
        assert mode_of(folder / START) == "prw-r--r--"
        assert mode_of(folder / REPORT) == "prw-rw-rw-"

    async def test_only_a_fifo_is_opened(self, channel: Path) -> None:
        before = descriptors()
        (channel / REPORT).unlink()
        (channel / REPORT).write_bytes(b"executed\n")
        with pytest.raises(OSError, match="it is no FIFO"), opened_reports(channel):
            pass
        (channel / REPORT).unlink()
        (channel / REPORT).symlink_to(channel / START)
        with pytest.raises(OSError, match="symbolic link"), opened_reports(channel):
            pass
        (channel / START).unlink()
        (channel / START).write_bytes(b"")
        with pytest.raises(OSError, match="it is no FIFO"):
            await send(channel, b"x", LONG)
        assert (channel / START).read_bytes() == b""
        assert descriptors() == before

    def test_a_missing_channel_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError), opened_reports(tmp_path / "none"):
            pass


def next_report(reports: ReportReader) -> Report | None:
    """Take one report; those after it are left."""
    return next(reports.look(), None)


class TestReports:
    def test_each_report_is_read_once_and_in_order(self, channel: Path, writer: int) -> None:
        with opened_reports(channel) as reports:
            os.write(writer, b"waiting\nexecuted\nended 256 7\n")
            assert next_report(reports) == Waiting()
            assert next_report(reports) == Executed()
            with opened_reports(channel) as others:
                assert others.all_reports() == [Ended(256, 7)]
            assert next_report(reports) is None

    def test_parts_of_a_line_are_one_report(self, channel: Path, writer: int) -> None:
        with opened_reports(channel) as reports:
            os.write(writer, b"exec")
            assert next_report(reports) is None
            os.write(writer, b"uted\n")
            assert next_report(reports) == Executed()

    @pytest.mark.parametrize(
        "junk",
        [
            b"x" * 200 + b"\n",
            b"\0\n" * 50,
            b"refused\n",
            b"\n\n",
        ],
    )
    def test_lines_that_are_no_report_are_skipped(
        self, channel: Path, writer: int, junk: bytes
    ) -> None:
        with opened_reports(channel) as reports:
            os.write(writer, junk + b"executed\n" + junk)
            assert next_report(reports) == Executed()
            os.write(writer, b"waiting\n")
            assert reports.all_reports()[-1:] == [Waiting()]

    def test_one_look_is_bounded(self, channel: Path, writer: int) -> None:
        os.write(writer, b"x" * LOOK_BYTES + b"\nexecuted\n")
        with opened_reports(channel) as reports:
            assert next_report(reports) is None
            assert next_report(reports) == Executed()
            os.write(writer, b"waiting\n" * LOOK_BYTES)
            assert len(list(reports.look())) == LOOK_BYTES // len(b"waiting\n")
            assert len(reports.all_reports()) == LOOK_BYTES // len(b"waiting\n")

    async def test_a_report_ends_the_wait(self, channel: Path, writer: int) -> None:
        with opened_reports(channel) as reports:
            waiting = asyncio.create_task(reports.wait(LONG))
            await asyncio.sleep(0)
            assert not waiting.done()
            os.write(writer, b"executed\n")
            await waiting

    async def test_the_last_writer_ends_the_wait(self, channel: Path) -> None:
        with opened_reports(channel) as reports:
            descriptor = os.open(channel / REPORT, os.O_WRONLY)
            waiting = asyncio.create_task(reports.wait(LONG))
            await asyncio.sleep(0)
            os.close(descriptor)
            await waiting
            assert next_report(reports) is None

    async def test_a_reader_without_writers_does_not_spin(self, channel: Path) -> None:
        with opened_reports(channel) as reports:
            os.close(os.open(channel / REPORT, os.O_WRONLY))
            assert next_report(reports) is None
            waiting = asyncio.create_task(reports.wait(LONG))
            for _ in range(10):
                await asyncio.sleep(0)
            assert not waiting.done()
            waiting.cancel()

    async def test_a_wait_has_an_end(self, channel: Path, writer: int) -> None:
        with opened_reports(channel) as reports:
            await reports.wait(0.001)
            assert next_report(reports) is None


class TestSend:
    async def test_a_message_of_any_size_arrives_whole(self, channel: Path, reader: int) -> None:
        sending = asyncio.create_task(send(channel, LARGE, LONG))
        found = b""
        while len(found) < len(LARGE):
            await asyncio.sleep(0)
            try:
                found += os.read(reader, len(LARGE))
            except BlockingIOError:
                continue
        await sending
        assert found == LARGE
        assert os.read(reader, 1) == b""  # the writer has left

    async def test_nobody_reads(self, channel: Path) -> None:
        with pytest.raises(BrokenPipeError):
            await send(channel, b"x", LONG)

    async def test_a_reader_that_leaves_is_an_error(self, channel: Path) -> None:
        before = descriptors()
        reader = os.open(channel / START, os.O_RDONLY | os.O_NONBLOCK)
        sending = asyncio.create_task(send(channel, LARGE, LONG))
        await until(lambda: len(descriptors() - before) > 1)
        os.close(reader)
        with pytest.raises(BrokenPipeError):
            await sending
        assert descriptors() == before

    async def test_a_reader_that_does_not_read_is_an_error(
        self, channel: Path, reader: int
    ) -> None:
        before = descriptors()
        with pytest.raises(TimeoutError):
            await send(channel, LARGE, 0.001)
        assert descriptors() == before

    async def test_a_cancelled_message_ends_for_its_reader(
        self, channel: Path, reader: int
    ) -> None:
        before = descriptors()
        sending = asyncio.create_task(send(channel, LARGE, LONG))
        await until(lambda: descriptors() != before)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert descriptors() == before
        found = os.read(reader, len(LARGE))
        assert 0 < len(found) < len(LARGE)
        assert os.read(reader, 1) == b""
