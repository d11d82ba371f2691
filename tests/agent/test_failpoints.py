"""The named steps: all of them are known, and no other can be broken."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from agent.config import AgentConfig
from agent.daemon import Daemon
from agent.failpoints import BLOCK_SECONDS, STEPS, failpoint
from tests.agent.hosts import let_go, nobody_else
from tests.fakes import FakeClock, FakeEngine

SOURCES = Path(__file__).resolve().parents[2] / "agent"
CALL = re.compile(r"(?:reach|step)\(\"([a-z.]+)\"\)")


def test_every_step_in_the_source_has_its_name_in_the_list() -> None:
    found = [name for path in SOURCES.rglob("*.py") for name in CALL.findall(path.read_text())]
    assert sorted(found) == sorted(STEPS)


@pytest.mark.parametrize("setting", ["start.saved", "start.saved:", ":kill", "no.such:kill", "x"])
def test_no_other_step_can_be_broken(setting: str) -> None:
    names = r"kill, hang, block, fail, of start\.reserved, start\.recorded"
    with pytest.raises(ValueError, match=names):
        failpoint(setting)


@pytest.mark.parametrize("setting", ["", "start.saved:hang"])
async def test_an_active_failpoint_is_a_warning_at_every_start(
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
    daemon = Daemon(config, FakeEngine(), FakeClock(), nobody_else)
    work = asyncio.create_task(daemon.run(), name="agent")
    await daemon.serving.wait()
    await let_go(work)
    warnings = [each for each in caplog.records if "failpoint is active" in each.getMessage()]
    assert [each.levelname for each in warnings] == ["WARNING"] * bool(setting)
    assert all(setting in each.getMessage() for each in warnings)


@pytest.mark.parametrize("step", STEPS)
async def test_a_step_fails_where_it_is_told_to(step: str) -> None:
    reach = failpoint(f"{step}:fail")
    with pytest.raises(RuntimeError, match=re.escape(step)):
        await reach(step)
    for other in STEPS:
        if other != step:
            await reach(other)
    await failpoint("")(step)


async def test_a_step_blocks_the_event_loop_where_it_is_told_to_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocked: list[float] = []
    monkeypatch.setattr("agent.failpoints.time.sleep", blocked.append)
    reach = failpoint("start.created:block")
    await reach("start.recorded")
    assert blocked == []
    await reach("start.created")
    assert blocked == [BLOCK_SECONDS]
