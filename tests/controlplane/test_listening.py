"""Stalls of the control plane are not downtime of hosts."""

import asyncio
import time
from pathlib import Path

import pytest

from controlplane.fleet.host.stall_aware_clock import (
    LONGEST,
    TICK,
    ListeningClock,
    listening_timeout,
)
from tests.support.controlplane.system import System, eventually
from tests.support.fake_clock import FakeClock


def test_clock_excludes_stalls() -> None:
    machine = FakeClock()
    clock = ListeningClock(machine)
    assert clock.now() == 0
    for passed, counted in ((TICK, TICK), (TICK, 2 * TICK), (3600, 2 * TICK + LONGEST)):
        machine.stall(passed)
        assert clock.now() == counted
        clock.look()
        assert clock.now() == counted
    machine.stall(TICK)
    assert clock.now() == 3 * TICK + LONGEST


async def test_timeout_excludes_stalls() -> None:
    listened = 0.0
    async with listening_timeout(0.01, lambda: listened):
        await asyncio.sleep(0.1)
    with pytest.raises(TimeoutError):
        async with listening_timeout(0.01, lambda: listened):
            await asyncio.sleep(0.05)
            listened = 0.01
            await asyncio.Event().wait()


async def test_a_stalled_control_plane_does_not_reconnect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "controlplane")
    monkeypatch.setattr("controlplane.fleet.host.stall_aware_clock.TICK", 0.05)
    monkeypatch.setattr("controlplane.fleet.host.stall_aware_clock.LONGEST", 0.1)
    monkeypatch.setattr("controlplane.fleet.host.watch.MESSAGE_TIMEOUT", 0.5)
    system = System(tmp_path)
    system.agent.beat = 0.1
    async with system:
        [link] = system.control_plane.fleet.hosts
        time.sleep(1.0)  # noqa: ASYNC251  a stall on purpose
        before = link.reported_at or 0
        await eventually(lambda: (link.reported_at or 0) > before)
    assert not [each for each in caplog.messages if "stream broke" in each]
