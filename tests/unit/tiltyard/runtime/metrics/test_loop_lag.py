import asyncio
import time
from unittest import mock

from tests.support.tasks import running
from tiltyard.runtime.metrics import loop_lag


@mock.patch.object(loop_lag, "INTERVAL_SECONDS", 0.001)
async def test_blocked_loop_is_observed() -> None:
    late = asyncio.get_running_loop().create_future()

    def observe(seconds: float) -> None:
        if seconds >= 0.04 and not late.done():
            late.set_result(seconds)

    async with running(loop_lag.watch(observe)):
        await asyncio.sleep(0)
        time.sleep(0.05)  # noqa: ASYNC251 - blocks on purpose
        await late
