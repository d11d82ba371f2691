"""Hand-overs to the real init program, without an engine."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.docker import first_process
from agent.docker.first_process import hand_over, init_state, until_begun
from agent.domain.containers.engine import InitState, Start
from agent.domain.errors import EngineError, HandOverFailedError, ImageCannotRunError
from agent.domain.sessions.session import Process
from agent.init.channel import LOOK_BYTES, REPORT, START, make_channel, opened_reports
from agent.init.messages import Ended
from agent.kernel.processes import live_process
from tests.support.agent.real_init import RealInit, real_init

SLEEP = Start(("/bin/sleep", "infinity"), {})
NONE = Process(2**22 - 1, 1)


@pytest.fixture
async def init(tmp_path: Path) -> AsyncIterator[RealInit]:
    async with real_init(tmp_path / ".init", {"OF_IMAGE": "1", "PATH": "/bin"}) as init:
        await init.until(InitState.WAITING)
        yield init


def replace_reports(channel: Path) -> None:
    """Take the reports away from an init that has opened them."""
    (channel / REPORT).unlink()
    make_channel(channel)


def sh(script: str, *, in_place: bool = False, **env: str) -> Start:
    return Start(("sh", "-c", script), env, in_place=in_place)


@pytest.fixture
async def channel(tmp_path: Path) -> Path:
    folder = tmp_path / ".init"
    await asyncio.to_thread(make_channel, folder)
    return folder


async def handed(init: RealInit, start: Start) -> None:
    await hand_over(init.process, init.channel, start)


async def output(init: RealInit) -> str:
    assert init.program.stdout is not None
    return (await asyncio.to_thread(init.program.stdout.read)).decode()


class TestState:
    async def test_shows_in_the_name_of_the_process(self, init: RealInit) -> None:
        assert await init.state() is InitState.WAITING
        await handed(init, SLEEP)
        assert await init.state() is InitState.RUNNING

    async def test_of_another_process_is_unknown(self) -> None:
        myself = live_process(os.getpid())
        assert myself is not None
        assert init_state(myself) is InitState.UNKNOWN

    async def test_of_a_later_process_with_its_id_is_not_believed(self, init: RealInit) -> None:
        earlier = Process(init.process.pid, init.process.start_ticks - 1)
        assert init_state(earlier) is None

    @pytest.mark.parametrize(
        ("name", "state"),
        [
            ("tiltyard-init", InitState.BEGINNING),
            ("tiltyard-hand", InitState.HANDED),
            ("runc:[2:INIT]", InitState.BEGINNING),
            ("tiltyard-waits", InitState.UNKNOWN),
            ("a (tiltyard-run", InitState.UNKNOWN),
        ],
    )
    async def test_of_each_name(self, name: str, state: InitState, tmp_path: Path) -> None:
        program = tmp_path / name
        shutil.copy("/bin/sleep", program)
        running = await asyncio.create_subprocess_exec(program, "infinity")
        try:
            process = live_process(running.pid)
            assert process is not None
            assert init_state(process) is state
        finally:
            running.kill()
            await running.wait()


class TestBegin:
    async def test_lasts_until_the_init_waits(self, channel: Path) -> None:
        with opened_reports(channel) as reports:
            async with real_init(channel) as init:
                found = await until_begun(init.process, reports)
        assert found is InitState.WAITING

    async def test_ends_with_the_process(self, channel: Path) -> None:
        with opened_reports(channel) as reports:
            assert await until_begun(NONE, reports) is None

    async def test_has_a_deadline(self, init: RealInit, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(first_process, "BEGIN_SECONDS", 0.001)

        monkeypatch.setattr(first_process, "init_state", lambda _: InitState.BEGINNING)
        with opened_reports(init.channel) as reports, pytest.raises(EngineError, match="does not"):
            await until_begun(init.process, reports)


class TestHandOver:
    async def test_executes_a_program_with_its_environment(self, init: RealInit) -> None:
        await handed(init, sh('echo "$0 $OF_IMAGE $MINE"; exit 3', MINE="two\nlines"))
        assert await output(init) == "sh 1 two\nlines\n"
        assert await asyncio.to_thread(init.program.wait) == 3

    async def test_of_two_mebibytes_arrives_whole(self, init: RealInit) -> None:
        size = 120_000
        start = Start(("sh", "-c", "echo $#", *["x" * size] * 8), {"Y": "y" * size})
        await handed(init, start)
        assert await output(init) == "7\n"

    async def test_in_place_takes_the_place_of_the_init(self, init: RealInit) -> None:
        await handed(init, sh("echo $$; exec sleep infinity", in_place=True))
        assert init.program.stdout is not None
        line = await asyncio.to_thread(init.program.stdout.readline)
        assert int(line) == init.process.pid
        assert await init.state() is InitState.UNKNOWN

    async def test_happens_once(self, init: RealInit) -> None:
        await handed(init, SLEEP)
        with pytest.raises(HandOverFailedError, match="it does not wait"):
            await handed(init, SLEEP)
        assert await init.state() is InitState.RUNNING

    async def test_to_what_is_no_init_writes_nothing(self, channel: Path) -> None:
        reader = os.open(channel / START, os.O_RDONLY | os.O_NONBLOCK)
        myself = live_process(os.getpid())
        for process in (myself, NONE, None):
            with pytest.raises(HandOverFailedError):
                await hand_over(process, channel, SLEEP)
        assert os.read(reader, 1) == b""
        os.close(reader)

    async def test_without_a_reader_fails(
        self, init: RealInit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The channel is that of another container."""
        monkeypatch.setattr(first_process, "EXECUTED_SECONDS", 0.001)
        other = tmp_path / "other"
        await asyncio.to_thread(make_channel, other)
        with pytest.raises(HandOverFailedError, match="it did not read all of it"):
            await hand_over(init.process, other, SLEEP)
        assert await init.state() is InitState.WAITING

    async def test_over_a_lost_channel_fails(self, init: RealInit, tmp_path: Path) -> None:
        with pytest.raises(HandOverFailedError, match="No such file"):
            await hand_over(init.process, tmp_path / "none", SLEEP)

    async def test_of_what_no_init_takes_fails(self, init: RealInit) -> None:
        with pytest.raises(HandOverFailedError, match="NUL"):
            await handed(init, Start(("/game\0",), {}))
        assert await init.state() is InitState.WAITING

    async def test_to_an_init_that_is_stopped_fails(self, init: RealInit) -> None:
        os.kill(init.process.pid, signal.SIGSTOP)
        message = Start(("/bin/true", *["x" * 100_000] * 8), {})
        handing = asyncio.create_task(handed(init, message))
        while not await asyncio.to_thread(writes, init.channel):
            pass
        os.kill(init.process.pid, signal.SIGKILL)
        with pytest.raises(HandOverFailedError):
            await handing

    async def test_to_an_init_that_does_not_read_has_a_deadline(
        self, init: RealInit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(first_process, "SEND_SECONDS", 0.001)
        os.kill(init.process.pid, signal.SIGSTOP)
        with pytest.raises(HandOverFailedError, match=r"within 0\.001 s"):
            await handed(init, Start(("/bin/true", *["x" * 100_000] * 8), {}))
        os.kill(init.process.pid, signal.SIGCONT)
        assert await asyncio.to_thread(init.program.wait) == 125

    async def test_without_an_answer_has_succeeded(
        self, init: RealInit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It will execute the program when it can: nobody knows when that is."""
        monkeypatch.setattr(first_process, "EXECUTED_SECONDS", 0.001)
        os.kill(init.process.pid, signal.SIGSTOP)
        await handed(init, SLEEP)
        os.kill(init.process.pid, signal.SIGCONT)
        await init.until(InitState.RUNNING)

    async def test_is_not_answered_by_earlier_reports(self, init: RealInit) -> None:
        writer = os.open(init.channel / REPORT, os.O_RDWR | os.O_NONBLOCK)
        os.write(writer, b"executed\n")
        with pytest.raises(ImageCannotRunError):
            await handed(init, Start(("/none",), {}))
        os.close(writer)

    async def test_reads_a_bounded_part_of_what_a_program_reports(
        self, channel: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A program that reports without end would keep the agent from everything else."""
        states = iter([InitState.WAITING, InitState.RUNNING])
        monkeypatch.setattr(first_process, "init_state", lambda _: next(states))
        reader = os.open(channel / START, os.O_RDONLY | os.O_NONBLOCK)
        writer = os.open(channel / REPORT, os.O_RDWR | os.O_NONBLOCK)
        os.write(writer, b"waiting\n" * LOOK_BYTES)
        await hand_over(NONE, channel, SLEEP)
        left = os.read(writer, 8 * LOOK_BYTES)
        assert len(left) == 6 * LOOK_BYTES  # without what was there before the hand-over
        os.close(reader)
        os.close(writer)

    async def test_leaves_later_reports_to_others(self, init: RealInit) -> None:
        with opened_reports(init.channel) as reports:
            await handed(init, Start(("/bin/true",), {}))
            await asyncio.to_thread(init.program.wait)
            [report] = reports.all_reports()
        assert isinstance(report, Ended)

    async def test_is_seen_without_its_report(self, init: RealInit) -> None:
        """Something in the container has read it."""
        await asyncio.to_thread(replace_reports, init.channel)
        await handed(init, SLEEP)
        assert await init.state() is InitState.RUNNING

    async def test_that_is_cancelled_executes_nothing_more(self, init: RealInit) -> None:
        os.kill(init.process.pid, signal.SIGSTOP)
        message = Start(("/bin/true", *["x" * 100_000] * 8), {})
        handing = asyncio.create_task(handed(init, message))
        while not await asyncio.to_thread(writes, init.channel):
            pass
        handing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await handing
        os.kill(init.process.pid, signal.SIGCONT)
        assert await asyncio.to_thread(init.program.wait) == 125


def writes(channel: Path) -> bool:
    """True while this process holds the writing end of a channel."""
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if descriptor.readlink() == channel / START:
                return True
    return False
