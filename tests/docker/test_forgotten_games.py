"""Games that containerd starts for an engine that has been killed, which forgets them."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.docker.machine import Agent, Machine, Player, a_machine, port_of
from tests.docker.stack import PATIENCE, eventually
from tests.docker.test_engine_faults import UNAVAILABLE
from tiltyard.agent.v1 import agent_pb2 as pb

RUNC = """#!/bin/sh
# runc, whose `start` waits for a line in a pipe while there is one.
for word in "$@"; do
    if [ "$word" = start ] && [ -p {gate} ]; then
        touch {reached}
        read -r _ < {gate}
    fi
done
exec runc "$@"
"""


class SlowStarts:
    """A runtime whose starts wait."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "slow-runc"
        self._gate = folder / "gate"
        self._reached = folder / "reached"
        self.program.write_text(RUNC.format(gate=self._gate, reached=self._reached))
        self.program.chmod(0o755)

    def hold(self) -> None:
        os.mkfifo(self._gate)

    def is_held(self) -> bool:
        return self._reached.exists()

    def release(self) -> None:
        with self._gate.open("w") as gate:
            self._gate.unlink()
            gate.write("\n")


@pytest.fixture
def slow(tmp_path: Path) -> SlowStarts:
    return SlowStarts(tmp_path)


@pytest.fixture
def machine(slow: SlowStarts) -> Iterator[Machine]:
    runtimes = {"slow": {"path": str(slow.program)}}
    with a_machine(runtimes=runtimes, default_runtime="slow") as machine:
        yield machine


@pytest.mark.slow
def test_f07_a_game_that_starts_after_its_engine_was_killed_is_ended(
    machine: Machine, slow: SlowStarts
) -> None:
    with Agent(machine, ports=3) as agent, ThreadPoolExecutor() as threads:
        slow.hold()
        answer = threads.submit(agent.refusal)
        _start_without_engine(machine, slow)
        assert answer.result(PATIENCE) in UNAVAILABLE
        eventually(lambda: not _tasks(machine), "the game is ended")
        session = agent.play()
        with Player(machine, port_of(session)) as player:
            assert player.seen_as(session) == player.address
        agent.end(session)


@pytest.mark.slow
def test_f07_a_game_that_is_started_again_after_its_engine_was_killed_runs_once(
    machine: Machine, slow: SlowStarts
) -> None:
    with Agent(machine, ports=1, stop_grace=0.3) as agent:
        session = agent.play(restart=True)
        before = agent.processes()[session.internal_id]
        slow.hold()
        os.kill(before, signal.SIGKILL)
        _start_without_engine(machine, slow)
        agent.until(session, pb.STATE_RUNNING)
        agent.doubles_lines = machine.client.version()["Version"].startswith("20.")
        assert len(_tasks(machine)) == 1
        with Player(machine, port_of(session)) as player:
            assert player.seen_as(session) == player.address
        agent.end(session)


def _start_without_engine(machine: Machine, slow: SlowStarts) -> None:
    """Kill the engine while it starts a container; bring it back once the container runs."""
    eventually(slow.is_held, "the start has begun")
    machine.engine.kill()
    slow.release()
    eventually(lambda: any("RUNNING" in task for task in _tasks(machine)), "the game runs")
    machine.engine.start()


def _tasks(machine: Machine) -> list[str]:
    """The containers of containerd that have a process."""
    address = str(machine.engine.folder / "containerd.sock")
    listed = machine.run("ctr", "--address", address, "--namespace", "moby", "tasks", "list")
    return listed.splitlines()[1:]
