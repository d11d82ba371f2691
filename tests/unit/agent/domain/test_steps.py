import re
from pathlib import Path

import pytest

from agent.domain.steps import STEPS
from tests.support.agent.served import WholeAgent

SOURCES = Path(__file__).resolve().parents[4] / "agent"
CALL = re.compile(r"(?:failpoint|step)\(\"([a-z.]+)\"\)")


def test_every_failpoint_in_the_source_is_listed() -> None:
    found = [name for path in SOURCES.rglob("*.py") for name in CALL.findall(path.read_text())]
    assert set(found) == set(STEPS)


@pytest.mark.parametrize("setting", ["", "start.saved:hang"])
async def test_active_failpoint_logs_a_warning_at_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, setting: str
) -> None:
    agent = WholeAgent(tmp_path, "one", failpoint=setting)
    await agent.start()
    await agent.stop()
    warnings = [each for each in caplog.records if "failpoint is active" in each.getMessage()]
    assert [each.levelname for each in warnings] == ["WARNING"] * bool(setting)
    assert all(setting in each.getMessage() for each in warnings)
