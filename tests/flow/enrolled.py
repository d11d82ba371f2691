"""A control plane that enrols hosts, and hosts that it reaches only by mutual TLS."""

import asyncio
import time
from pathlib import Path
from typing import Any

from agent.rpc.enrolment import Enrolled, enrol
from agent.rpc.identity import FILE, Identity
from controlplane.settings.model import Config
from tests.support.agent.served import WholeAgent
from tests.support.controlplane.enrolling import Tokens
from tests.support.harness import free_port


async def enrolled(host: WholeAgent, url: str, token: str, **more: str) -> Enrolled:
    """Enrol a host with the control plane at a URL."""
    wanted = {"name": host.name, "address": host.config.rpc_listen, **more}
    made = await enrol(url, token, wanted, time.time())
    await asyncio.to_thread(made.identity.save, host.config.state_dir / FILE)
    return made


class Enrolling(Tokens):
    """Both programs in one process; hosts join by enrolment."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(folder, agents=0, **{"enrol_listen": "127.0.0.1:0", **settings})
        self.hosts: dict[str, WholeAgent] = {}

    @property
    def config(self) -> Config:
        """Settings without agents: all in `agents` were enrolled."""
        return super().config.model_copy(update={"agents": ()})

    async def host(self, name: str) -> WholeAgent:
        """Start an agent that is not yet enrolled."""
        made = WholeAgent(self.folder, name, rpc_listen=f"127.0.0.1:{free_port()}")
        self._stack.push_async_callback(made.stop)
        await made.start()
        self.hosts[name] = made
        return made

    async def enrol(self, host: WholeAgent, token: str, **more: str) -> Enrolled:
        """Enrol as `tiltyard-agent enrol` does."""
        return await enrolled(host, self.control_plane.enrol_url, token, **more)

    async def identity(self, host: WholeAgent) -> Identity:
        """Read the identity of a host."""
        found = await asyncio.to_thread(Identity.read, host.config.state_dir / FILE)
        assert found is not None
        return found

    async def joined(self, name: str) -> WholeAgent:
        """Enrol a host and wait until it is ready."""
        host = await self.host(name)
        await self.enrol(host, await self.token())
        await self.reaches(name, "ready")
        self.agents.append(host)  # type: ignore[arg-type]  # has all that System uses
        return host

    async def make_game(self) -> str:
        """Make the application `game`, wait until every host has its tag, return the image."""
        small = {"cpu": 1, "ram": 64}
        return await self.make_application(reservation=small, limits=small)
