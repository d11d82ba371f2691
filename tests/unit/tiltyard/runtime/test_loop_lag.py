import asyncio
import time

import pytest

from tests.support.tasks import running
from tiltyard.runtime import loop_lag


async def test_blocked_loop_is_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_lag, "INTERVAL_SECONDS", 0.001)
    late = asyncio.get_running_loop().create_future()

    def observe(seconds: float) -> None:
        if seconds >= 0.04 and not late.done():
            late.set_result(seconds)

    async with running(loop_lag.watch(observe)):
        await asyncio.sleep(0)
        time.sleep(0.05)  # noqa: ASYNC251 - blocks on purpose
        await late
