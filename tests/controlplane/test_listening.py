"""What passes while nobody listens is no host's silence."""

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
from tests.support.fake_clock import AheadClock, FakeClock


def test_it_stands_still_while_nobody_looks() -> None:
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


async def test_a_time_out_counts_what_was_listened() -> None:
    listened = 0.0
    async with listening_timeout(0.01, lambda: listened):
        await asyncio.sleep(0.1)
    with pytest.raises(TimeoutError):
        async with listening_timeout(0.01, lambda: listened):
            await asyncio.sleep(0.05)
            listened = 0.01
            await asyncio.Event().wait()


async def test_a_control_plane_that_stood_still_goes_on_at_once(tmp_path: Path) -> None:
    system = System(tmp_path, placement_silence=5.0)
    system.clock = clock = AheadClock()
    async with system:
        await system.make_application()
        assert (await system.start(id="x")).status == 201
        system.agent.beat = 3600.0
        system.agent.change_host(free_sessions=5)
        clock.monotonic_ahead = 3600.0  # it stood still
        assert (await system.start(id="y")).status == 201
        assert await system.status_of("x") == "running"


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
        time.sleep(1.0)  # noqa: ASYNC251  what nobody may do
        heard = link.reported_at or 0
        await eventually(lambda: (link.reported_at or 0) > heard)
    assert not [each for each in caplog.messages if "stream broke" in each]
