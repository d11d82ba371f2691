"""Both programs in one process, over a real socket and real HTTP; only the engine is in memory."""

import asyncio
from pathlib import Path
from typing import Any

from agent.app.daemon import Daemon
from agent.domain.session import Session
from agent.kernel.clock import SystemHostClock
from agent.settings.model import AgentConfig
from tests.faults.invariants import Observation, violations
from tests.faults.ledger import ledger
from tests.faults.memory_host import observed
from tests.faults.records import recorded_sessions
from tests.support.agent.hosts import nobody_else
from tests.support.controlplane.system import System, eventually
from tests.support.fakes import EveryImage, FakeClock, FakeEngine

CLOCK = SystemHostClock()


class WholeAgent:
    """An agent on a FakeEngine that outlives it."""

    def __init__(
        self, folder: Path, name: str, *, engine: FakeEngine | None = None, **settings: Any
    ) -> None:
        self.name = name
        self.engine = engine or FakeEngine(FakeClock(CLOCK.time()))
        self.config = AgentConfig(
            state_dir=folder / name,
            socket=folder / f"{name}.sock",
            public_address="192.0.2.1",
            metrics_listen="",
            firewall_bridges=(),
            **{"cpu": 8, "ram": 4096, "stop_grace": 0.2, **settings},
        )
        self._work: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        return f"unix:{self.config.socket}"

    async def start(self) -> None:
        daemon = Daemon(self.config, self.engine, CLOCK, nobody_else)
        self._work = asyncio.create_task(daemon.run(), name=f"agent {self.name}")
        serving = asyncio.create_task(daemon.serving.wait(), name="serving")
        await asyncio.wait({self._work, serving}, return_when=asyncio.FIRST_COMPLETED)
        if self._work.done():
            serving.cancel()
            await self._work

    async def stop(self) -> None:
        """End it; its containers run on."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
            self._work = None

    def have_every_image(self) -> None:
        """Let the engine pull whatever is asked for."""
        self.engine.registry = EveryImage()

    @property
    def live(self) -> list[str]:
        """Names of containers on the engine."""
        return [held.name for held in self.engine._containers.values()]

    @property
    def directories(self) -> list[str]:
        return sorted(path.name for path in (self.config.state_dir / "sessions").iterdir())

    def observed(self, free_ports: int) -> Observation:
        """The host as it is now; `free_ports` are those that it tells of."""
        state, (first, last) = self.config.state_dir, self.config.ports()
        return observed(
            self.engine,
            (state / "agent_id").read_text().strip(),
            self.sessions,
            now=CLOCK.time(),
            ports=2 * (last - first + 1),
            free_ports=free_ports,
        )

    @property
    def sessions(self) -> list[Session]:
        """The sessions that the host has a record of."""
        return recorded_sessions(self.config.state_dir)


class Whole(System):
    """A control plane and one agent that is the real one."""

    def __init__(self, folder: Path, *, agent: dict[str, Any] | None = None, **more: Any) -> None:
        super().__init__(folder, agents=0, **more)
        self.host = WholeAgent(folder, "host-1", **(agent or {}))
        self.agents = [self.host]  # type: ignore[list-item]  # it has what System asks of one

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None and ledger.wants_checks:
                await self._no_violation_is_left()
                ledger.checked = True
        finally:
            await super().__aexit__(kind, error, trace)

    @property
    def engine(self) -> FakeEngine:
        return self.host.engine

    def have_every_image(self) -> None:
        """Let the engine pull whatever is asked for."""
        self.host.have_every_image()

    async def make_game(self, **changes: Any) -> str:
        """Make the application `game` and have its tag pulled; return the image."""
        self.have_every_image()
        return await self.make_application(
            reservation={"cpu": 1, "ram": 64}, limits={"cpu": 1, "ram": 64}, **changes
        )

    async def nothing_is_left_anywhere(self) -> None:
        """Wait until no row, reservation, attempt, container, directory or port is left."""
        await self.nothing_is_left()
        await eventually(lambda: not self.host.live and not self.host.directories)
        link = self.control_plane.fleet.host(self.host.name)
        assert link is not None

        def as_new() -> bool:
            host, (first, last) = link.report, self.host.config.ports()
            return (
                host is not None
                and host.reserved.nano_cpus == 0
                and host.free_udp_ports == host.free_tcp_ports == last - first + 1
            )

        await eventually(as_new)

    async def _no_violation_is_left(self) -> None:
        found = ["not looked at"]

        def none_is_left() -> bool:
            found[:] = violations(self._observed())
            return not found

        try:
            await eventually(none_is_left)
        except TimeoutError:
            raise AssertionError(found) from None

    def _observed(self) -> Observation:
        link = self.control_plane.fleet.host(self.host.name)
        assert link is not None
        assert link.report is not None
        return self.host.observed(link.report.free_tcp_ports + link.report.free_udp_ports)
