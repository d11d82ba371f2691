"""Both programs in one process, over a real socket and real HTTP; only the engine is in memory."""

from pathlib import Path
from typing import Any

from tests.faults.invariants import OF_A_HOST, violations
from tests.faults.ledger import ledger
from tests.support.agent.served import WholeAgent
from tests.support.controlplane.system import System, eventually, eventually_equals
from tests.support.fake_engine import FakeEngine


class Whole(System):
    """A control plane and one real agent."""

    def __init__(self, folder: Path, *, agent: dict[str, Any] | None = None, **more: Any) -> None:
        super().__init__(folder, agents=0, **more)
        self.host = WholeAgent(folder, "host-1", **(agent or {}))
        self.agents = [self.host]  # type: ignore[list-item]  # has all that System uses

    @property
    def engine(self) -> FakeEngine:
        return self.host.engine

    async def make_game(self, **changes: Any) -> str:
        """Make the application `game`, wait until its tag is pulled, return the image."""
        return await self.make_application(
            reservation={"cpu": 1, "ram": 64}, limits={"cpu": 1, "ram": 64}, **changes
        )

    async def nothing_is_left_anywhere(self) -> None:
        """Wait until no row, reservation, attempt, container, directory or port is left."""
        await self.nothing_is_left()
        await eventually(lambda: not self.host.live and not self.host.directories)
        link = self.link(self.host.name)

        def as_new() -> bool:
            host = link.state.report
            first, last = self.host.config.ports()
            return (
                host is not None
                and host.reserved.nano_cpus == 0
                and host.free_udp_ports == host.free_tcp_ports == last - first + 1
            )

        await eventually(as_new)

    async def _assert_survived(self) -> None:
        await eventually_equals(self._violations, [])
        ledger.checked |= OF_A_HOST

    async def _violations(self) -> list[str]:
        link = self.link(self.host.name)
        assert link.state.report is not None
        free_ports = link.state.report.free_tcp_ports + link.state.report.free_udp_ports
        return violations(self.host.observed(free_ports))
