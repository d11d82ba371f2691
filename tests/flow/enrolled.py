"""A control plane that enrols hosts, and hosts that it reaches by mutual TLS alone."""

import asyncio
import time
from pathlib import Path
from typing import Any

from agent.rpc.enrolment import Enrolled, Token, enrol
from agent.rpc.identity import FILE, Identity
from controlplane.settings.model import Config
from tests.support.agent.served import WholeAgent
from tests.support.controlplane.enrolling import Tokens
from tests.support.controlplane.system import eventually
from tests.support.harness import free_port


class Enrolling(Tokens):
    """Both programs in one process; hosts join as they do for operators."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(folder, agents=0, **{"enrol_listen": "127.0.0.1:0", **settings})
        self.hosts: dict[str, WholeAgent] = {}

    @property
    def config(self) -> Config:
        """The settings declare no agent: what `agents` has was enrolled."""
        return super().config.model_copy(update={"agents": ()})

    async def host(self, name: str) -> WholeAgent:
        """Start an agent that is not enrolled yet."""
        made = WholeAgent(self.folder, name, rpc_listen=f"127.0.0.1:{free_port()}")
        made.have_every_image()
        self._stack.push_async_callback(made.stop)
        await made.start()
        self.hosts[name] = made
        return made

    async def enrol(self, host: WholeAgent, token: str, **more: str) -> Enrolled:
        """Do what `tiltyard-agent enrol` does."""
        url, wanted = self.control_plane.enrol_url, {"name": host.name}
        wanted |= {"address": host.config.rpc_listen, **more}
        enrolled = await enrol(url, Token.parse(token), wanted, time.time())
        await asyncio.to_thread(enrolled.identity.save, host.config.state_dir / FILE)
        return enrolled

    async def identity(self, host: WholeAgent) -> Identity:
        """Read who a host is."""
        found = await asyncio.to_thread(Identity.read, host.config.state_dir / FILE)
        assert found is not None
        return found

    async def joined(self, name: str) -> WholeAgent:
        """A host that is enrolled and ready."""
        host = await self.host(name)
        await self.enrol(host, await self.token())
        await self.reaches(name, "ready")
        self.agents.append(host)  # type: ignore[arg-type]  # it has what System asks of one
        return host

    async def reaches(self, name: str, state: str) -> None:
        async def holds() -> bool:
            return str((await self.shown(name))["state"]) == state

        await eventually(holds)

    async def make_game(self) -> str:
        """Make the application `game` and have its tag pulled by every host; return the image."""
        small = {"cpu": 1, "ram": 64}
        return await self.make_application(reservation=small, limits=small)
