"""The real init program as a process of this machine, without a container."""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.docker.first_process import init_state
from agent.domain.containers.engine import InitState
from agent.domain.sessions.session import Process
from agent.init import binary
from agent.init.channel import make_channel
from agent.kernel.processes import live_process


@dataclass(frozen=True, slots=True)
class RealInit:
    """A running init. `program` is its process, which ends with the context."""

    program: subprocess.Popen[bytes]
    process: Process
    channel: Path

    async def state(self) -> InitState | None:
        return init_state(self.process)

    async def until(self, state: InitState | None) -> None:
        """Wait until it is in a state; None for its end."""
        while await self.state() is not state:
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def real_init(
    channel: Path, env: Mapping[str, str] | None = None
) -> AsyncIterator[RealInit]:
    """Create a channel and run an init on it, which soon waits."""
    await asyncio.to_thread(make_channel, channel)
    program = await asyncio.to_thread(_run, channel, env or {})
    try:
        process = live_process(program.pid)
        assert process is not None
        yield RealInit(program, process, channel)
    finally:
        program.kill()
        with program:  # closes its output
            await asyncio.to_thread(program.wait)


def _run(channel: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([binary.PATH, channel], env=env, stdout=subprocess.PIPE)
