"""What passes while nobody listens is no host's silence."""

from __future__ import annotations

import time
from pathlib import Path

from controlplane.app import ControlPlane
from controlplane.clock import Clock
from controlplane.fleet.listening import LONGEST, TICK, ListeningClock
from tests.controlplane.system import System


def test_it_stands_still_while_nobody_looks() -> None:
    now = 100.0
    clock = ListeningClock(Clock(monotonic=lambda: now))
    assert clock.now() == 0
    for passed, counted in ((TICK, TICK), (TICK, 2 * TICK), (3600, 2 * TICK + LONGEST)):
        now += passed
        assert clock.now() == counted
        clock.look()
        assert clock.now() == counted
    now += TICK
    assert clock.now() == 3 * TICK + LONGEST


class Standing(System):
    """A control plane that can be made to have stood still."""

    stood = 0.0

    def make_control_plane(self) -> ControlPlane:
        clock = Clock(monotonic=lambda: time.monotonic() + self.stood)
        return ControlPlane(self.config, clock)


async def test_a_control_plane_that_stood_still_goes_on_at_once(tmp_path: Path) -> None:
    async with Standing(tmp_path, placement_silence=3.0) as system:
        await system.make_application()
        assert (await system.start(id="x")).status == 201
        system.agent.beat = 3600.0
        system.agent.change_host(free_sessions=5)
        system.stood = 3600.0
        assert (await system.start(id="y")).status == 201
        assert await system.status_of("x") == "running"
