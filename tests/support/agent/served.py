"""An agent with an engine in memory that serves on a socket, and commands against it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

from click.testing import CliRunner, Result

from agent.app.daemon import Daemon
from agent.cli.main import main
from agent.domain.clock import HostClock
from agent.domain.sessions.session import Session
from agent.kernel.clock import SystemHostClock
from agent.network.tls_certificate import CertificateFiles
from agent.sessions.manager import SessionManager
from agent.settings.model import AgentConfig
from tests.faults.invariants import Observation
from tests.faults.memory_host import observed
from tests.faults.records import recorded_sessions
from tests.support.agent.hosts import all_ports_free
from tests.support.agent.samples import IMAGE
from tests.support.fake_clock import FakeClock
from tests.support.fake_container import EveryImage
from tests.support.fake_engine import FakeEngine

CLOCK = SystemHostClock()


class WholeAgent:
    """An agent on a FakeEngine that outlives it, by default one that can pull any image."""

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        engine: FakeEngine | None = None,
        clock: HostClock = CLOCK,
        **settings: Any,
    ) -> None:
        self.name = name
        self.clock = clock
        if engine is None:
            engine = FakeEngine(FakeClock(CLOCK.time()))
            engine.image_store.registry = EveryImage()
        self.engine = engine
        self.config = AgentConfig(
            socket=folder / f"{name}.sock",
            public_address="192.0.2.1",
            **{
                "firewall_bridges": (),
                "state_dir": folder / name,
                "metrics_listen": "",
                "prepared": 0,
                "cpu": 8,
                "ram": 4096,
                "stop_grace": 0.2,
                **settings,
            },
        )
        self.daemon: Daemon
        self._work: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        return f"unix:{self.config.socket}"

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        made = asyncio.to_thread(Daemon, self.config, self.engine, self.clock, all_ports_free)
        self.daemon = await made
        self._work = asyncio.create_task(self.daemon.run(), name=f"agent {self.name}")
        serving = asyncio.create_task(self.daemon.serving.wait(), name="serving")
        try:
            await asyncio.wait({self._work, serving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            serving.cancel()
        if self._work.done():
            await self._work

    async def stop(self) -> None:
        """Stop the agent; its containers keep running."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
            self._work = None

    @property
    def live(self) -> list[str]:
        """Names of containers on the engine."""
        return [held.name for held in self.engine.all]

    @property
    def directories(self) -> list[str]:
        return sorted(path.name for path in (self.config.state_dir / "sessions").iterdir())

    def observed(self, free_ports: int) -> Observation:
        """The current state of the host; `free_ports` as reported."""
        state = self.config.state_dir
        (first, last) = self.config.ports()
        return observed(
            self.engine,
            (state / "agent_id").read_text().strip(),
            self.recorded,
            now=CLOCK.time(),
            ports=2 * (last - first + 1),
            free_ports=free_ports,
        )

    @property
    def recorded(self) -> list[Session]:
        """The sessions with a record on the host."""
        return recorded_sessions(self.config.state_dir)

    @property
    def sessions(self) -> SessionManager:
        return self.daemon.sessions

    async def run(self, *arguments: str) -> Result:
        """Run a command to its end, one at a time because of the standard output."""
        command = [*arguments, "--socket", str(self.config.socket)]
        return await asyncio.to_thread(CliRunner().invoke, main, command)

    async def ok(self, *arguments: str) -> str:
        result = await self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout


@contextlib.asynccontextmanager
async def served(
    folder: Path,
    engine: FakeEngine,
    clock: HostClock,
    certificate: CertificateFiles | None = None,
    *,
    metrics_listen: str = "",
    prepared: int = 0,
) -> AsyncIterator[WholeAgent]:
    """Serve until the context ends, with an image for sessions."""
    engine.image_store.add(IMAGE)
    policy = folder / "policy.toml"
    await asyncio.to_thread(policy.write_text, "host_network = true\n")
    async with WholeAgent(
        folder,
        "agent",
        engine=engine,
        clock=clock,
        state_dir=folder / "state",
        metrics_listen=metrics_listen,
        prepared=prepared,
        policy=policy,
        stop_grace=0.05,
        tls_certificate=certificate.certificate if certificate else None,
        tls_key=certificate.key if certificate else None,
    ) as agent:
        while not agent.sessions.reconciled:
            await asyncio.sleep(0)
        yield agent
