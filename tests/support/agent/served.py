"""An agent on a socket, its engine in memory, and the commands of `tiltyard-agent` against it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from agent.app.daemon import Daemon
from agent.cli.main import main
from agent.domain.clock import HostClock
from agent.network.tls_certificate import CertificateFiles
from agent.settings.model import AgentConfig
from tests.support.agent.hosts import let_go, nobody_else
from tests.support.agent.samples import IMAGE
from tests.support.fakes import FakeEngine


class Served:
    """An agent that serves, and its commands."""

    def __init__(self, daemon: Daemon, config: AgentConfig, engine: FakeEngine) -> None:
        self.daemon = daemon
        self.config = config
        self.engine = engine

    @property
    def sessions(self) -> Any:
        return self.daemon._reconciler._sessions

    async def run(self, *arguments: str) -> Result:
        """Run a command to its end; one at a time, since it has the standard output."""
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
) -> AsyncIterator[Served]:
    """Serve until the context is left, with an image to start sessions of."""
    engine.add_image(IMAGE)
    policy = folder / "policy.toml"
    await asyncio.to_thread(policy.write_text, "host_network = true\n")
    config = AgentConfig(
        state_dir=folder / "state",
        socket=folder / "agent.sock",
        public_address="192.0.2.1",
        metrics_listen=metrics_listen,
        policy=policy,
        cpu=8,
        ram=4096,
        stop_grace=0.05,
        firewall_bridges=(),
        tls_certificate=certificate.certificate if certificate else None,
        tls_key=certificate.key if certificate else None,
    )
    daemon = await asyncio.to_thread(Daemon, config, engine, clock, nobody_else)
    work = asyncio.create_task(daemon.run(), name="agent")
    await daemon.serving.wait()
    while not daemon._reconciler._sessions.reconciled:
        await asyncio.sleep(0)
    try:
        yield Served(daemon, config, engine)
    finally:
        await let_go(work)
