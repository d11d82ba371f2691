"""What the real init program reports: refusals and ends."""

import asyncio
import errno
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.docker.first_process import error_of_refusal, hand_over, reported_end
from agent.domain.engine import InitState, ReportedEnd, Start
from agent.domain.errors import HandOverFailedError, ImageCannotRunError
from agent.domain.session import Process
from agent.init.messages import Cause, Refused
from agent.kernel.processes import live_process, wait_end
from tests.support.agent.real_init import RealInit, read_state, real_init

SLEEP = Start(("/bin/sleep", "infinity"), {})


@pytest.fixture
async def init(tmp_path: Path) -> AsyncIterator[RealInit]:
    async with real_init(tmp_path / ".init", {"OF_IMAGE": "1", "PATH": "/bin"}) as init:
        await init.until(InitState.WAITING)
        yield init


def sh(script: str) -> Start:
    return Start(("sh", "-c", script), {})


async def handed(init: RealInit, start: Start) -> None:
    await hand_over(init.process, init.channel, start, read_state)


async def end_of(process: Process) -> None:
    async def read(pid: int) -> Process | None:
        return await asyncio.to_thread(live_process, pid)

    await wait_end(process, read)


class TestRefusals:
    @pytest.fixture
    def programs(self, tmp_path: Path) -> Path:
        (tmp_path / "text").write_text("no program")
        script = tmp_path / "script"
        script.write_text("#!/none/sh\n")
        script.chmod(0o755)
        other = tmp_path / "other"
        of_this = bytearray(Path("/bin/true").read_bytes())
        of_this[18:20] = (0xF3).to_bytes(2, "little")  # RISC-V
        other.write_bytes(of_this)
        other.chmod(0o755)
        return tmp_path

    @pytest.mark.parametrize(
        ("program", "cause", "exit_code"),
        [
            ("missing", "no such file", 127),
            ("text", "not executable by the image's user", 126),
            ("script", "its interpreter or dynamic loader is missing", 127),
            ("other", "it is for another processor architecture", 126),
        ],
    )
    @pytest.mark.parametrize("in_place", [False, True])
    async def test_names_program_and_cause(
        self,
        init: RealInit,
        programs: Path,
        program: str,
        cause: str,
        exit_code: int,
        *,
        in_place: bool,
    ) -> None:
        path = str(programs / program)
        with pytest.raises(ImageCannotRunError) as error:
            await handed(init, Start((path,), {}, in_place=in_place))
        assert error.value.cause == f"{path}: {cause}"
        assert await asyncio.to_thread(init.program.wait) == exit_code

    def test_arguments_do_not_make_it_long(self) -> None:
        error = error_of_refusal(Refused(2, Cause.MISSING), "x" * 100_000)
        assert len(str(error)) < 300

    def test_an_init_that_was_stopped_is_nobodys_mistake(self) -> None:
        error = error_of_refusal(Refused(errno.EINTR, Cause.OTHER), "/game")
        assert isinstance(error, HandOverFailedError)

    @pytest.mark.parametrize("cause", Cause)
    def test_only_image_and_request_are_blamed(self, cause: Cause) -> None:
        error = error_of_refusal(Refused(12, cause), "/game")
        is_of_host = cause in {Cause.RESOURCES, Cause.HAND_OVER}
        assert isinstance(error, HandOverFailedError if is_of_host else ImageCannotRunError)


class TestEnd:
    async def test_reports_the_exit_code(self, tmp_path: Path) -> None:
        found = await self.ended(tmp_path, "exit 3")
        assert found is not None
        assert found.exit_code == 3

    async def test_reports_the_signal(self, tmp_path: Path) -> None:
        found = await self.ended(tmp_path, "kill -SEGV $$")
        assert found is not None
        assert found.exit_code == 128 + signal.SIGSEGV

    async def test_of_a_killed_init_is_not_reported(self, init: RealInit) -> None:
        await handed(init, SLEEP)
        ending = asyncio.create_task(reported_end(init.channel, end_of(init.process)))
        await asyncio.sleep(0)
        os.kill(init.process.pid, signal.SIGKILL)
        assert await ending is None

    async def test_that_has_come_before_is_not_reported(self, init: RealInit) -> None:
        os.kill(init.process.pid, signal.SIGKILL)
        assert await reported_end(init.channel, end_of(init.process)) is None

    async def test_without_a_channel_is_awaited(self, init: RealInit, tmp_path: Path) -> None:
        ending = asyncio.create_task(reported_end(tmp_path / "none", end_of(init.process)))
        await asyncio.sleep(0)
        assert not ending.done()
        os.kill(init.process.pid, signal.SIGKILL)
        assert await ending is None

    async def ended(self, folder: Path, last: str) -> ReportedEnd | None:
        """Run a program that ends once its end is awaited."""
        gate = folder / "gate"
        await asyncio.to_thread(os.mkfifo, gate)
        async with real_init(folder / ".init", {"PATH": "/bin"}) as init:
            await init.until(InitState.WAITING)
            await handed(init, sh(f"read line < {gate}; {last}"))
            ending = asyncio.create_task(reported_end(init.channel, end_of(init.process)))
            await asyncio.sleep(0)
            await asyncio.to_thread(gate.write_text, "go\n")
            return await ending
