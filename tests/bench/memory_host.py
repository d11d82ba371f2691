"""An agent process with an in-memory engine that logs each signal to a session.

`python -m tests.bench.memory_host CONFIG` is the program.
"""

import asyncio
import sys
import time
from pathlib import Path

from agent.app.daemon import Daemon
from agent.domain.sessions.session import Process
from agent.kernel.clock import SystemHostClock
from agent.settings.model import load_config
from tests.support.agent.hosts import all_ports_free
from tests.support.fake_container import EveryImage
from tests.support.fake_engine import FakeEngine
from tests.support.harness import AgentProcess, to_toml
from tests.support.real_engine import accepts

IMAGE = f"registry.example.net/arena@sha256:{'0' * 64}"
_KILLED = "killed"


class MemoryHost(AgentProcess):
    """Runs that program, with IMAGE, any pull, and capacity for a host's maximum of sessions."""

    def __init__(self, **settings: object) -> None:
        super().__init__(Path("/nowhere"), cpu=1000, ram=2**20, **settings)

    def start(self) -> None:
        self.config.write_text(to_toml(self.settings))
        command = [sys.executable, "-m", __name__, str(self.config)]
        self.process.launch(command, lambda: accepts(self.socket))

    def kill_times(self) -> dict[str, float]:
        """Return when each session was first signalled, in seconds of CLOCK_BOOTTIME."""
        lines = map(str.split, self.process.log.read_text().splitlines())
        reported = [line[1:] for line in lines if line[:1] == [_KILLED]]
        return {internal_id: float(at) for internal_id, at in reversed(reported)}


class _Engine(FakeEngine):
    """Prints each signal to a container with its time."""

    async def signal_process(self, process: Process, signal: str) -> None:
        at = time.clock_gettime(time.CLOCK_BOOTTIME)
        for held in self.all:
            if held.process == process:
                sys.stdout.write(f"{_KILLED} {held.spec.internal_id} {at!r}\n")
        await super().signal_process(process, signal)


def main(config: str) -> None:
    """Serve until SIGTERM."""
    clock = SystemHostClock()
    engine = _Engine(clock)
    engine.image_store.add(IMAGE)
    engine.image_store.registry = EveryImage()
    asyncio.run(Daemon(load_config(Path(config)), engine, clock, all_ports_free).run())


if __name__ == "__main__":
    main(*sys.argv[1:])
