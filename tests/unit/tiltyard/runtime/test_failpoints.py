import asyncio
import re
import signal

import pytest

from tests.support.tasks import let_go
from tiltyard.runtime.failpoints import BLOCK_SECONDS, failpoint

STEPS = ("start.created", "start.saved")


@pytest.mark.parametrize(
    "setting", ["start.saved", "start.saved:", "start.saved:burn", ":kill", "no.such:kill", "x"]
)
def test_rejects_an_unknown_step_or_action(setting: str) -> None:
    with pytest.raises(ValueError, match=r"block, fail, of start\.created, start\.saved"):
        failpoint(setting, STEPS)


async def test_kills_the_process_at_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr("tiltyard.runtime.failpoints.os.kill", lambda _, sig: killed.append(sig))
    reach = failpoint("start.saved:kill", STEPS)
    await reach("start.created")
    assert killed == []
    with pytest.raises(RuntimeError, match=r"start\.saved"):  # SIGKILL would not return
        await reach("start.saved")
    assert killed == [signal.SIGKILL]


async def test_hangs_at_the_step() -> None:
    reach = failpoint("start.saved:hang", STEPS)
    await reach("start.created")
    hanging = asyncio.ensure_future(reach("start.saved"))
    await asyncio.sleep(0)
    assert not hanging.done()
    await let_go(hanging)


async def test_blocks_the_event_loop_at_the_step_and_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocked: list[float] = []
    monkeypatch.setattr("tiltyard.runtime.failpoints.time.sleep", blocked.append)
    reach = failpoint("start.created:block", STEPS)
    await reach("start.saved")
    assert blocked == []
    await reach("start.created")
    assert blocked == [BLOCK_SECONDS]


async def test_fails_at_the_step() -> None:
    reach = failpoint("start.created:fail", STEPS)
    await reach("start.saved")
    with pytest.raises(RuntimeError, match=re.escape("start.created")):
        await reach("start.created")
