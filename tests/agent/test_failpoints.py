"""The named steps: all of them are known, and no other can be broken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.failpoints import BLOCK_SECONDS, STEPS, failpoint

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
