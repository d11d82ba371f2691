import re
from pathlib import Path

import pytest

from agent.app.daemon import Daemon
from agent.domain.steps import STEPS
from agent.settings.model import AgentConfig
from tests.support.agent.hosts import all_ports_free
from tests.support.fakes import FakeClock, FakeEngine
from tests.support.tasks import running

SOURCES = Path(__file__).resolve().parents[4] / "agent"
CALL = re.compile(r"(?:failpoint|step)\(\"([a-z.]+)\"\)")


def test_every_failpoint_in_the_source_is_listed() -> None:
    found = [name for path in SOURCES.rglob("*.py") for name in CALL.findall(path.read_text())]
    assert sorted(found) == sorted(STEPS)


@pytest.mark.parametrize("setting", ["", "start.saved:hang"])
async def test_active_failpoint_logs_a_warning_at_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, setting: str
) -> None:
    config = AgentConfig(
        state_dir=tmp_path / "state",
        socket=tmp_path / "agent.sock",
        public_address="192.0.2.1",
        metrics_listen="",
        firewall_bridges=(),
        failpoint=setting,
    )
    daemon = Daemon(config, FakeEngine(), FakeClock(), all_ports_free)
    async with running(daemon.run()):
        await daemon.serving.wait()
    warnings = [each for each in caplog.records if "failpoint is active" in each.getMessage()]
    assert [each.levelname for each in warnings] == ["WARNING"] * bool(setting)
    assert all(setting in each.getMessage() for each in warnings)
