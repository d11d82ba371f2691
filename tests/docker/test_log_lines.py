"""Endless lines, and followers whose engine is killed."""

import threading
from pathlib import Path

import pytest

from agent.domain.containers.engine import LOG_BYTES
from agent.logs.follower import MISSING
from agent.logs.sealed import DROPPED
from tests.docker.killed_agent import KilledAgent
from tests.docker.machine import Machine
from tests.docker.stack import Stack, eventually
from tests.docker.test_log_faults import sealed, written
from tests.docker.test_sessions import numbered
from tests.faults.game_logs import log_violations
from tests.faults.plugin import Rounds
from tests.faults.real_host import SEAL_PATIENCE

MEBIBYTE = 2**20
MOST_MEMORY_BYTES = 300 * MEBIBYTE  # Memory bound of either program, whatever games write


def _most_memory(pid: int) -> int:
    """Peak memory of a process in bytes."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(dict(line.split(":\t", 1) for line in status)["VmHWM"].split()[0]) * 1024


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_f31_a_line_of_a_gigabyte_harms_nobody(stack: Stack, rounds: Rounds) -> None:
    """One follower reads at full speed, one not at all; the end of the line is kept."""
    # Without other lines, which would end the long one.
    endless = ["--flood", "0", "--flood-with", "one-line", "--lines-per-second", "0"]
    loud = stack.start(args=endless)
    [process] = stack.pids().values()
    quiet = stack.start(args=["--lines-per-second", "50"])
    size = rounds(64, 1024) * MEBIBYTE
    markers: list[int] = []

    def follow() -> None:
        # After a gap it receives nothing until the line ends.
        with stack.client.stream("/logs", id=loud["id"], follow="true", timeout=300) as log:
            tail = b""
            while chunk := log.read(2**18):
                markers.append((tail + chunk).count(MISSING))
                tail = chunk[-len(MISSING) + 1 :]

    follower = threading.Thread(target=follow, name="follower")
    with (
        stack.client.stream("/logs", id=loud["id"], follow="true") as stalled,
        stack.client.stream("/logs", id=quiet["id"], follow="true") as log,
    ):
        stalled.read(1)
        follower.start()
        received: list[int] = []
        while written(process) < size:
            received += numbered(log.readline())
            assert stack.status(loud["id"]) == "running"
        assert received == list(range(1, len(received) + 1))
        stack.end(loud["id"])
        follower.join()
    assert sum(markers) <= 1  # one marker per line
    for part in (stack.agent, stack.control_plane):
        assert _most_memory(part.process.pid) < MOST_MEMORY_BYTES
    what = "it is sealed; until then the engine's is served"
    eventually(lambda: any(sealed(stack)), what, patience=SEAL_PATIENCE)

    def read() -> bytes:
        return bytes(stack.client.get("/logs", id=loud["id"]).expect(200).body)

    eventually(lambda: len(read()) <= LOG_BYTES, "a moment later it is what is kept")
    kept = read()
    assert len(kept) > min(size, LOG_BYTES) // 2
    begin, _, rest = kept.partition(b"\n")
    assert begin.startswith(DROPPED.partition(b"%")[0])
    assert set(rest[:MEBIBYTE]) == set(b"x")
    assert stack.status(quiet["id"]) == "running"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("quietly", [False, True], ids=["killed", "stopped"])
def test_f07_a_log_that_is_followed_while_the_engine_goes_away_has_each_line_once(
    machine: Machine, rounds: Rounds, quietly: bool
) -> None:
    with KilledAgent(machine, ports=3) as agent:
        session = agent.play("--lines-per-second", "300")
        received = bytearray()

        def follow() -> None:
            for answer in agent.following(session, timeout=None):
                received.extend(answer.data)

        follower = threading.Thread(target=follow, name="follower")
        follower.start()
        eventually(lambda: bool(received), "it has begun; else the engine's absence is an error")
        [container] = agent.containers()
        ends = rounds(2, 20)
        for end in range(1, ends + 1):
            if quietly:
                machine.engine.stop()
            else:
                machine.engine.kill()
            eventually(lambda: not agent.engine_available, "it is noticed")
            machine.engine.start()
            eventually(lambda: agent.engine_available, "it is noticed that it is back")
            container.kill("SIGUSR1")  # makes it write a line
            eventually(lambda end=end: received.count(b"SIGUSR1: ") == end, "the engine reads on")  # type: ignore[misc]
        agent.end(session)
        follower.join()
        numbers = numbered(bytes(received))
        assert numbers == sorted(set(numbers))
        assert MISSING not in received
        assert log_violations(session.internal_id, bytes(received), may_lack=ends) == []
        assert b"".join(part.data for part in agent.following(session)) == bytes(received)
