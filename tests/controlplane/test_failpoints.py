"""The named steps: all of them are known, and no other can be broken."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path

import pytest

from controlplane.config import Config
from controlplane.errors import ConfigError
from controlplane.failpoints import STEPS, failpoint

SOURCES = Path(__file__).resolve().parents[2] / "controlplane"
CALL = re.compile(r"reach\(\"([a-z.]+)\"\)")


def test_every_step_in_the_source_has_its_name_in_the_list() -> None:
    found = [name for path in SOURCES.rglob("*.py") for name in CALL.findall(path.read_text())]
    assert sorted(found) == sorted(STEPS)


@pytest.mark.parametrize("setting", ["start.answered", "start.answered:fail", ":kill", "no:kill"])
def test_no_other_step_can_be_broken(setting: str) -> None:
    with pytest.raises(ConfigError, match=r"failpoint: must be NAME:kill or NAME:hang, of start"):
        Config(failpoint=setting)


@pytest.mark.parametrize("step", STEPS)
async def test_a_step_is_broken_where_it_is_told(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr("controlplane.failpoints.os.kill", lambda _, number: killed.append(number))
    monkeypatch.setattr("controlplane.failpoints.HANG_SECONDS", 0.0)
    reach = failpoint(f"{step}:kill")
    for other in STEPS:
        if other != step:
            await reach(other)
    await failpoint("")(step)
    assert killed == []
    await reach(step)
    assert killed == [signal.SIGKILL]


async def test_a_step_hangs_where_it_is_told() -> None:
    hanging = asyncio.create_task(failpoint("start.answered:hang")("start.answered"), name="hangs")
    await asyncio.sleep(0)
    assert not hanging.done()
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)
