"""Lifetimes follow real elapsed time, whatever the machine's clocks do.

For the agent alone, a preloaded library moves the wall clock and a time namespace the boot time.
"""

import subprocess
from pathlib import Path

import pytest

from tests.docker.stack import Stack, eventually

DAY = 86400
DECADE = 3652 * DAY
SOURCE = Path(__file__).with_name("wall_clock.c")


@pytest.fixture(scope="module")
def wall_clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that, if preloaded, moves the wall clock of a process."""
    library = tmp_path_factory.mktemp("wall-clock") / "wall_clock.so"
    command = ["gcc", "-shared", "-fPIC", "-O", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return library


def _later(seconds: int) -> list[str]:
    return ["unshare", "--time", "--fork", "--kill-child", "--boottime", str(seconds)]


def _restart(stack: Stack, *wrapper: str) -> None:
    """Kill the agent and start it with other clocks."""
    stack.agent.kill()
    stack.agent.wrapper, stack.agent.clocks_moved = wrapper, True
    stack.agent.start()


def _short_ends_long_lives(stack: Stack, *wrapper: str) -> None:
    """Check that after an hour a lifetime of 10 minutes is over, and one of 10 hours is not."""
    long, short = stack.start(ttl="10h"), stack.start(ttl="10m")
    assert stack.record(long["id"])["deadline"]
    _restart(stack, *wrapper)
    eventually(lambda: stack.status(short["id"]) == "exited", "it has ended")
    assert stack.record(short["id"])["end_reason"] == "ttl"
    # All sessions considered due are stopped in the same step.
    assert stack.status(long["id"]) == "running"
    assert stack.record(long["id"])["stop_reason"] is None
    stack.agent.kill()  # `unshare` passes no SIGTERM on


def test_f24_a_lifetime_that_ends_while_the_agent_is_down_ends_the_session_on_its_return(
    stack: Stack,
) -> None:
    _short_ends_long_lives(stack, *_later(3600))


@pytest.mark.parametrize(
    "offset", [DAY, *(pytest.param(back, marks=pytest.mark.slow) for back in (-DAY, -DECADE))]
)
def test_f26_a_wall_clock_that_jumps_ends_nothing_early_and_nothing_late(
    stack: Stack, wall_clock: Path, offset: int
) -> None:
    off = ("env", f"LD_PRELOAD={wall_clock}", f"WALL_CLOCK_OFFSET={offset}")
    _short_ends_long_lives(stack, *_later(3600), *off)


@pytest.mark.slow
def test_f27_time_asleep_counts_and_the_monotonic_clock_does_not(stack: Stack) -> None:
    _short_ends_long_lives(stack, *_later(3600), "--monotonic", str(DAY))


@pytest.mark.slow
def test_f25_a_lifetime_ends_the_session_while_the_control_plane_is_down(stack: Stack) -> None:
    made = stack.start(ttl="1m")
    stack.control_plane.kill()
    eventually(
        lambda: stack.record(made["id"])["end_reason"] is not None, "it has ended", patience=120
    )
    record = stack.record(made["id"])
    assert record["end_reason"] == "ttl"
    assert record["end_time"] - record["start_time"] >= 60
    stack.control_plane.start()
    eventually(lambda: stack.status(made["id"]) == "exited", "it is known to have ended")
