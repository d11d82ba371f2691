import asyncio
import contextlib
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.domain.sessions.session import Process
from agent.kernel.processes import UNLIMITED, live_process, name_of, resource_limit, wait_end
from tests.support.agent.hosts import until
from tests.support.tasks import let_go


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until it is killed."""
    with subprocess.Popen(["sleep", "infinity"]) as program:
        yield program
        program.kill()


@pytest.fixture
def process(program: subprocess.Popen[bytes]) -> Process:
    process = live_process(program.pid)
    assert process is not None
    return process


def held() -> set[str]:
    """The descriptors by which this process holds other processes."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since
            if "pidfd" in str(path.readlink()):
                found.add(path.name)
    return found


async def test_wait_ends_with_the_process(
    program: subprocess.Popen[bytes], process: Process
) -> None:
    before = held()
    waiting = asyncio.create_task(wait_end(process))
    await until(lambda: held() != before)
    assert not waiting.done()
    program.kill()
    await waiting
    assert held() == before


async def test_cancelled_wait_releases_the_process(process: Process) -> None:
    before = held()
    waiting = asyncio.create_task(wait_end(process))
    await until(lambda: held() != before)
    await let_go(waiting)
    assert held() == before


async def test_process_whose_id_was_reused_has_ended() -> None:
    me = live_process(os.getpid())
    assert me is not None
    await wait_end(Process(me.pid, me.start_ticks + 1))


def test_limits_are_those_of_the_kernel(program: subprocess.Popen[bytes]) -> None:
    resource.prlimit(program.pid, resource.RLIMIT_NOFILE, (100, 200))
    resource.prlimit(program.pid, resource.RLIMIT_CPU, (7, resource.RLIM_INFINITY))
    assert resource_limit(program.pid, "Max open files") == (100, 200)
    assert resource_limit(program.pid, "Max cpu time") == (7, UNLIMITED)
    with pytest.raises(ValueError, match="does not name"):
        resource_limit(program.pid, "Max none")


def test_name_may_contain_anything(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([program, "infinity"]) as running:
        process = live_process(running.pid)
        assert process is not None
        assert name_of(process) == "a) R 1 (b"
        running.kill()


def test_later_process_has_not_the_name_of_its_predecessor(process: Process) -> None:
    assert name_of(process) == "sleep"
    assert name_of(Process(process.pid, process.start_ticks - 1)) is None


def test_zombie_has_no_name(program: subprocess.Popen[bytes], process: Process) -> None:
    program.kill()
    os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
    assert name_of(process) is None
