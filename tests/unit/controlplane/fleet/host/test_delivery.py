"""Calls to one host that are repeated until it answers."""

from random import Random

import pytest

from controlplane.domain.errors import AgentUnavailableError
from controlplane.fleet.host.delivery import MAX_BACK_OFF, Deliveries
from tests.support.fake_clock import FakeClock
from tiltyard.runtime.tasks import FAULT_PAUSE


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (AgentUnavailableError("it is away"), []),
        (
            RuntimeError("as scripted"),
            [f"a call fails: internal error seconds={FAULT_PAUSE} agent=h1"],
        ),
    ],
    ids=["expected", "unexpected"],
)
async def test_call_is_repeated_after_any_error(
    caplog: pytest.LogCaptureFixture, error: Exception, logged: list[str]
) -> None:
    clock = FakeClock()
    deliveries = Deliveries("h1", clock, Random(1))
    attempts = 0

    async def attempt() -> str:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise error
        return "done"

    call = deliveries.start("stop", "x", attempt=attempt, failed=lambda **_: None)
    await clock.advance(FAULT_PAUSE + MAX_BACK_OFF)
    assert await call == "done"
    assert attempts == 2
    assert caplog.messages == logged
