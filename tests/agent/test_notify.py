"""What a service manager hears of an agent."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from agent.app.daemon import Daemon
from agent.settings.model import AgentConfig
from tests.support.agent.hosts import nobody_else, until
from tests.support.fakes import FakeClock, FakeEngine
from tests.support.service_manager import a_manager
from tiltyard.runtime.systemd import Supervision


async def test_an_agent_is_ready_once_it_serves_beats_and_tells_before_it_lets_go(
    tmp_path: Path,
) -> None:
    told: list[str] = []
    config = AgentConfig(
        state_dir=tmp_path / "state",
        socket=tmp_path / "run" / "agent.sock",
        public_address="192.0.2.1",
        metrics_listen="",
        firewall_bridges=(),
    )
    with a_manager(str(tmp_path / "notify")) as manager:

        def has(state: str) -> Callable[[], bool]:
            def is_told() -> bool:
                told.extend(manager.heard())
                return state in told

            return is_told

        supervision = Supervision(manager.address, 10.0)
        daemon = Daemon(config, FakeEngine(), FakeClock(), nobody_else, supervision=supervision)
        work = asyncio.create_task(daemon.run(), name="agent")
        await until(has("READY=1"))
        assert daemon.serving.is_set()
        await until(has("WATCHDOG=1"))
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        told.extend(manager.heard())
    assert [told[0], told[-1]] == ["READY=1", "STOPPING=1"]
