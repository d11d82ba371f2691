"""docs/examples/follow_events.* print what happens, and go on after what they have handled."""

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.support.controlplane.system import System
from tests.support.doc_examples import ROOT
from tests.support.node_programs import compiled, need_node

EXAMPLES = ROOT / "docs" / "examples"
READY = re.compile(r"(.+) is ready on 192\.0\.2\.1")
PATIENCE = 60.0

pytestmark = pytest.mark.system(application={})


@asynccontextmanager
async def running(system: System, *command: str) -> AsyncIterator[Process]:
    """Run an example until the end of the block."""
    environment = os.environ | {
        "TILTYARD_URL": system.control_plane.base_url,
        "TILTYARD_TOKEN": system.tokens["alice"],
    }
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, env=environment)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):  # it has failed
            process.kill()
        await process.wait()


async def line(process: Process) -> str:
    """Read a line."""
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        return (await process.stdout.readline()).decode().strip()


async def test_python_example_goes_on_after_what_it_has_handled(
    system: System, tmp_path: Path
) -> None:
    position = tmp_path / "position.txt"
    position.write_text(str(await system.control_plane.event_log.newest()))
    command = (sys.executable, str(EXAMPLES / "follow_events.py"), str(position))
    async with running(system, *command) as process:
        await system.start(id="a")
        found = await line(process)
        assert found.startswith("a is ready on 192.0.2.1, ports ")
        assert found.endswith(" for 7777/udp, 20001 for 7778/tcp")
        await system.call("DELETE", "/session/a")
        assert await line(process) == "a has ended: stopped"
    await system.start(id="b")
    async with running(system, *command) as process:
        while (found := await line(process)) == "a has ended: stopped":
            pass  # It was killed before it has stored that
        assert found.startswith("b is ready")


async def test_typescript_example_prints_what_happens(system: System, tmp_path: Path) -> None:
    need_node()
    program = await compiled(EXAMPLES / "follow_events.ts", tmp_path)
    async with running(system, "node", str(program)) as process:
        waiting = system.control_plane.event_log.waiting
        async with asyncio.timeout(PATIENCE):
            while not waiting("alice"):
                await asyncio.sleep(0.01)
        await system.start(id="a")
        assert READY.match(await line(process))
        await system.call("DELETE", "/session/a")
        while (found := await line(process)) != "a has ended: stopped":
            assert found
