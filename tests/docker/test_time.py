"""Lifetimes follow real elapsed time, whatever the machine's clocks do.

For the agent alone, a preloaded library moves the wall clock and a time namespace the boot time.
"""

import sys
import time
from pathlib import Path

import pytest

from tests.demo_game import compiled
from tests.docker.machine import Agent, Machine, Player, port_of
from tests.docker.stack import Stack, eventually
from tests.faults.invariants import LATE_SECONDS
from tiltyard.agent.v1 import agent_pb2 as pb

DAY = 86400
DECADE = 3652 * DAY
SHORT = 5  # Seconds of a short lifetime
SOURCE = Path(__file__).with_name("wall_clock.c")


class WallClock:
    """A wall clock for programs that is off by seconds, which may change while they run."""

    def __init__(self, library: Path, offset: Path) -> None:
        self._offset = offset
        self.jump(0)
        self.wrapper = ("env", f"LD_PRELOAD={library}", f"WALL_CLOCK_OFFSET={offset}")

    def jump(self, seconds: int) -> None:
        """Have it be this far off from now on."""
        mode = "r+b" if self._offset.exists() else "wb"
        with self._offset.open(mode) as file:  # the same file, which programs have mapped
            file.write(seconds.to_bytes(8, sys.byteorder, signed=True))


@pytest.fixture
def wall_clock(tmp_path: Path) -> WallClock:
    return WallClock(compiled(SOURCE, "-shared", "-fPIC"), tmp_path / "offset")


def _later(seconds: int) -> list[str]:
    return ["unshare", "--time", "--fork", "--kill-child", "--boottime", str(seconds)]


def _restart(stack: Stack, *wrapper: str) -> None:
    """Kill the agent and start it with other clocks."""
    stack.agent.kill()
    stack.agent.wrapper = wrapper
    stack.agent.clocks_moved = True
    stack.agent.start()


def _short_ends_long_lives(stack: Stack, *wrapper: str) -> None:
    """Check that after an hour a lifetime of 10 minutes is over, and one of 10 hours is not."""
    long = stack.start(ttl="10h")
    short = stack.start(ttl="10m")
    assert stack.record(long["id"])["deadline"]
    _restart(stack, *wrapper)
    stack.until(short["id"], "exited")
    assert stack.record(short["id"])["end_reason"] == "ttl"
    # All sessions considered due are stopped in the same step.
    assert stack.status(long["id"]) == "running"
    assert stack.record(long["id"])["stop_reason"] is None
    stack.agent.kill()  # `unshare` passes no SIGTERM on


def test_f24_a_lifetime_that_ends_while_the_agent_is_down_ends_the_session_on_its_return(
    stack: Stack,
) -> None:
    _short_ends_long_lives(stack, *_later(3600))


JUMPS = pytest.mark.parametrize(
    "offset",
    [
        DAY,
        *(pytest.param(back, marks=pytest.mark.slow) for back in (-DAY, -DECADE)),
    ],
)


@JUMPS
def test_f26_a_wall_clock_that_jumps_ends_nothing_early_and_nothing_late(
    stack: Stack, wall_clock: WallClock, offset: int
) -> None:
    wall_clock.jump(offset)
    _short_ends_long_lives(stack, *_later(3600), *wall_clock.wrapper)


@pytest.mark.slow
@JUMPS
def test_f26_a_wall_clock_that_jumps_while_the_agent_runs_changes_no_lifetime(
    machine: Machine, wall_clock: WallClock, offset: int
) -> None:
    inside = machine.engine.network.inside(*wall_clock.wrapper)
    with Agent(machine, ports=3, wrapper=inside, stop_grace=1) as agent:
        agent.clocks_moved = True
        long = agent.play(ttl=DAY // 2)
        begin = time.monotonic()
        short = agent.play(ttl=SHORT)
        wall_clock.jump(offset)
        later = agent.play(ttl=SHORT)
        for session in (short, later):
            ended = agent.until(session, pb.STATE_EXITED, patience=SHORT + LATE_SECONDS)
            assert ended.end_reason == pb.END_REASON_TTL
        assert time.monotonic() - begin >= SHORT
        # All sessions considered due are stopped in the same step.
        assert agent.session(long).state == pb.STATE_RUNNING
        wall_clock.jump(0)
        with Player(machine, port_of(long)) as player:
            assert player.seen_as(long) == player.address
        agent.assert_ports_agree(long)


@pytest.mark.slow
def test_f27_time_asleep_counts_and_the_monotonic_clock_does_not(stack: Stack) -> None:
    _short_ends_long_lives(stack, *_later(3600), "--monotonic", str(DAY))


@pytest.mark.slow
@pytest.mark.thorough
def test_f25_a_lifetime_ends_the_session_while_the_control_plane_is_down(stack: Stack) -> None:
    made = stack.start(ttl="1m")
    stack.control_plane.kill()
    eventually(
        lambda: stack.record(made["id"])["end_reason"] is not None, "it has ended", patience=120
    )
    record = stack.record(made["id"])
    assert record["end_reason"] == "ttl"
    assert 60 <= record["end_time"] - record["start_time"] <= 60 + LATE_SECONDS
    stack.control_plane.start()
    stack.until(made["id"], "exited")
