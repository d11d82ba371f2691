"""What the real init program reports: refusals and ends."""

import asyncio
import errno
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.docker.first_process import error_of_refusal, hand_over, reported_end
from agent.domain.containers.engine import InitState, ReportedEnd, Start
from agent.domain.errors import HandOverFailedError, ImageCannotRunError
from agent.init.channel import KeptReports
from agent.init.messages import Cause, Refused
from agent.kernel.processes import wait_end
from tests.support.agent.real_init import RealInit, real_init

SLEEP = Start(("/bin/sleep", "infinity"), {})


@pytest.fixture
async def init(tmp_path: Path) -> AsyncIterator[RealInit]:
    async with real_init(tmp_path / ".init", {"OF_IMAGE": "1", "PATH": "/bin"}) as init:
        await init.until(InitState.WAITING)
        yield init


def sh(script: str) -> Start:
    return Start(("sh", "-c", script), {})


async def handed(init: RealInit, start: Start) -> None:
    await hand_over(init.process, init.channel, start)


async def followed(init: RealInit, kept: KeptReports | None = None) -> ReportedEnd | None:
    return await reported_end(init.channel, wait_end(init.process), kept or KeptReports())


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
        ending = asyncio.create_task(followed(init))
        await asyncio.sleep(0)
        os.kill(init.process.pid, signal.SIGKILL)
        assert await ending is None

    async def test_that_has_come_before_is_not_reported(self, init: RealInit) -> None:
        os.kill(init.process.pid, signal.SIGKILL)
        assert await followed(init) is None

    async def test_that_has_come_since_the_hand_over_is_kept(self, init: RealInit) -> None:
        kept = KeptReports()
        with kept.kept(init.channel):
            await handed(init, sh("exit 3"))
        await wait_end(init.process)
        found = await followed(init, kept)
        assert found is not None
        assert found.exit_code == 3
        assert await followed(init, kept) is None

    async def test_is_not_kept_after_a_hand_over_that_failed(self, init: RealInit) -> None:
        kept = KeptReports()
        with pytest.raises(ZeroDivisionError), kept.kept(init.channel):
            raise ZeroDivisionError
        await handed(init, sh("exit 3"))
        await wait_end(init.process)
        assert await followed(init, kept) is None

    async def test_without_a_channel_is_awaited(self, init: RealInit, tmp_path: Path) -> None:
        end = reported_end(tmp_path / "none", wait_end(init.process), KeptReports())
        ending = asyncio.create_task(end)
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
            ending = asyncio.create_task(followed(init))
            await asyncio.sleep(0)
            await asyncio.to_thread(gate.write_text, "go\n")
            return await ending
