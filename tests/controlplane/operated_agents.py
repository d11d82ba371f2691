"""A control plane whose agents operators look at, drain, undeclare and remove."""

from typing import Any

from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.controlplane.system import Answer, System, eventually

LOST: dict[str, Any] = {"unresponsive_after": 3.0, "unreachable_after": 3.0, "lost_after": 3.5}


class Operated(System):
    async def ask(self, method: str, path: str = "") -> Answer:
        return await self.call(method, f"/operator/agent{path}")

    async def agents_by_name(self) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in (await self.read("/operator/agent"))["agents"]}

    async def undeclare(self) -> FakeAgent:
        """Remove the last agent from the settings file, and restart; the agent keeps running."""
        gone = self.agents.pop()
        await self.restart()
        await self.reaches(gone.name, "ready")
        return gone

    async def undeclare_the_only_one_in_use(self) -> FakeAgent:
        """Make an application, drain a0, and undeclare a1, which gets all sessions."""
        await self.make_application()
        self.agent.change_host(draining=True)
        gone = await self.undeclare()
        await eventually(lambda: self.control_plane.fleet.is_draining("a0"))
        return gone

    async def fills(self, agent: FakeAgent) -> None:
        """Have the next sessions placed on an agent's host."""
        self.prefer(agent)
        agent.change_host()
        link = self.link(agent.name)
        await eventually(
            lambda: link.state.report is not None and link.state.report.reserved.nano_cpus > 0
        )
