import asyncio
from collections.abc import Callable
from pathlib import Path

from agent.app.daemon import Daemon
from tests.support.agent.hosts import all_ports_free, until
from tests.support.agent.served import WholeAgent
from tests.support.fakes import FakeClock, FakeEngine
from tests.support.service_manager import a_manager
from tiltyard.runtime.systemd import Supervision


async def test_notifies_ready_watchdog_and_stopping(tmp_path: Path) -> None:
    states: list[str] = []
    config = WholeAgent(tmp_path, "agent").config
    with a_manager(str(tmp_path / "notify")) as manager:

        def has(state: str) -> Callable[[], bool]:
            def is_sent() -> bool:
                states.extend(manager.received())
                return state in states

            return is_sent

        supervision = Supervision(manager.address, 10.0)
        daemon = Daemon(config, FakeEngine(), FakeClock(), all_ports_free, supervision=supervision)
        work = asyncio.create_task(daemon.run(), name="agent")
        await until(has("READY=1"))
        assert daemon.serving.is_set()
        await until(has("WATCHDOG=1"))
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        states.extend(manager.received())
    assert [states[0], states[-1]] == ["READY=1", "STOPPING=1"]
