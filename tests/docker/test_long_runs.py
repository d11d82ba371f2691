"""Repeated faults and long runs on a real engine: no disturbance and no leaks.

Each has a short form in `make test-ci` and a long one with `--long`.
"""

import itertools
import os
import signal
import socket
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Self

import grpc
import pytest

from tests.demo_game.player import udp_round_trip
from tests.docker.killed_agent import KilledAgent, LogLine
from tests.docker.machine import FIRST, Machine, port_of
from tests.docker.stack import eventually
from tests.faults.plugin import Figure, Rounds
from tests.support.leaks import resident_bytes
from tiltyard.agent.v1 import agent_pb2 as pb


class Supervisor:
    """Restarts an agent that does not notify for `watchdog` seconds.

    Entering the context restarts the agent with the notification socket.
    """

    def __init__(self, agent: KilledAgent, watchdog: float) -> None:
        self._agent = agent
        self._wrapper = agent.wrapper
        self._watchdog = watchdog
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="supervisor")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notifications: list[str] = []
        self.restarts = 0

    def __enter__(self) -> Self:
        path = self._agent.folder / "notify"
        self._socket.bind(str(path))
        self._socket.settimeout(self._watchdog)
        environment = (f"NOTIFY_SOCKET={path}", f"WATCHDOG_USEC={round(self._watchdog * 10**6)}")
        self._agent.wrapper = [*self._wrapper, "env", *environment]
        self._agent.come_back_as_it_is()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._socket.close()
        self._agent.wrapper = self._wrapper

    def _watch(self) -> None:
        while not self._over.is_set():
            try:
                self.notifications.append(self._socket.recv(1024).decode())
            except TimeoutError:
                self._agent.come_back_as_it_is()
                self.restarts += 1


pytestmark = pytest.mark.slow

MOST_SESSIONS = 20
FLOOD = 1_000_000  # Bytes per second of a chatty game, in lines of 128
LINES_PER_SECOND = FLOOD // 128
LONGEST_STALL = 5.0
"""Seconds that a busy machine may delay a game; a blocking agent would delay it for ten."""
WATCHDOG = 5.0
"""Seconds; shorter than in the unit, since an agent is blocked for ten, and longer than an agent
on a busy machine stalls: each further restart fails the test."""
POOLS = 24  # Threads and connections that pools may still open under more concurrency
SPARE_BYTES = 16 * 1024 * 1024  # Memory of an agent that pools and allocators may add
CALLERS = 3  # Concurrent callers that make an agent open its usual threads and connections


def assert_complete(lines: list[LogLine]) -> None:
    """Check that no line is lost or duplicated, up to the last one of a stopped game."""
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    assert lines[-1].text == "SIGTERM: saving"


@pytest.mark.timeout(1800)
def test_f01_an_agent_killed_again_and_again_disturbs_no_session(
    machine: Machine, rounds: Rounds
) -> None:
    kills = rounds(3, 100)
    count = min(MOST_SESSIONS, kills + 2)
    with KilledAgent(machine, ports=count) as agent:
        sessions = [agent.play("--lines-per-second", "20") for _ in range(count)]
        before = agent.processes()
        assert len(before) == count
        for _ in range(kills):
            agent.kill()
            for session in sessions:
                udp_round_trip(machine.engine.network.address, port_of(session))
            agent.come_back()
            agent.assert_undisturbed(before, *sessions)
        for session in sessions:
            agent.end(session)
            agent.until_sealed(session)
            assert_complete(agent.log(session))
        agent.assert_ports_agree()
        for session in sessions:
            agent.discard(session)
        assert agent.containers() == []
        assert agent.directories() == set()


@pytest.mark.timeout(600)
def test_f48_a_chatty_game_never_waits_for_an_agent_that_is_stopped(
    machine: Machine, rounds: Rounds
) -> None:
    with KilledAgent(machine, ports=2) as agent:
        session = agent.play("--flood", str(FLOOD))
        for _ in range(rounds(1, 5)):
            os.kill(agent.process.pid, signal.SIGSTOP)
            try:
                wait_for_lines(agent, session, seconds=5)
            finally:
                os.kill(agent.process.pid, signal.SIGCONT)
        assert_never_held_up(agent, session)


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_f48_a_chatty_game_never_waits_for_an_event_loop_that_is_blocked(
    machine: Machine, rounds: Rounds
) -> None:
    with KilledAgent(machine, ports=3) as agent:
        session = agent.play("--flood", str(FLOOD))
        agent.break_at("start.created", "block")
        wait_for_lines(agent, session, seconds=1)
        for _ in range(rounds(1, 3)):
            other = agent.play()  # returns once the loop runs again
            agent.discard(other)
        assert_never_held_up(agent, session)


def wait_for_lines(agent: KilledAgent, session: pb.Session, *, seconds: int) -> None:
    """Wait until the game has written its output of this number of seconds."""
    container = agent.container_of(session)
    until = _last_line(container.logs(tail=1)) + seconds * LINES_PER_SECOND
    eventually(lambda: _last_line(container.logs(tail=1)) >= until, "the game writes")


def _last_line(tail: bytes) -> int:
    return int(tail.split(maxsplit=1)[0]) if tail else 0


def assert_never_held_up(agent: KilledAgent, session: pb.Session) -> None:
    """Stop the game and check by its time stamps that no line waited for an agent."""
    agent.end(session)
    agent.until_sealed(session)
    lines = agent.log(session)
    assert_complete(lines)
    assert longest_gap(lines) < LONGEST_STALL


def longest_gap(lines: Iterable[LogLine]) -> float:
    """The maximum number of seconds between consecutive lines."""
    times = [datetime.fromisoformat(line.time) for line in lines]
    return max((later - time).total_seconds() for time, later in itertools.pairwise(times))


def test_f48_a_watchdog_starts_a_blocked_agent_again_and_no_session_notices(
    machine: Machine, rounds: Rounds
) -> None:
    # A port is released a moment after its container is gone.
    with KilledAgent(machine, ports=6) as agent:
        sessions = [agent.play(), agent.play(restart=True)]
        before = agent.processes()
        agent.settings["failpoint"] = "start.waiting:block"  # a step of each start
        with Supervisor(agent, WATCHDOG) as supervisor:
            for _ in range(rounds(1, 5)):
                bites = supervisor.restarts  # a busy agent may be bitten once more
                with pytest.raises(grpc.RpcError) as killed:
                    agent.play()
                assert killed.value.code() is grpc.StatusCode.UNAVAILABLE
                eventually(lambda bites=bites: supervisor.restarts > bites, "it serves again")  # type: ignore[misc]
                eventually(lambda: agent.processes() == before, "nothing is left of the third")
        assert supervisor.notifications[:2] == ["READY=1", "WATCHDOG=1"]
        agent.assert_undisturbed(before, *sessions)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_f47_sessions_that_come_and_go_leave_nothing_in_the_agent_or_the_kernel(
    machine: Machine, rounds: Rounds, figure: Figure
) -> None:
    with KilledAgent(machine, ports=CALLERS) as agent, ThreadPoolExecutor(CALLERS) as callers:

        def cycle(_: int) -> None:
            session = agent.play()
            udp_round_trip(machine.engine.network.address, port_of(session))
            agent.discard(session)

        list(callers.map(cycle, range(3 * CALLERS)))
        before = held(agent)
        memory = resident_bytes(agent.process.pid)
        for number in range(rounds(POOLS + 6, 300)):
            cycle(number)
        grown = resident_bytes(agent.process.pid) - memory
        figure("memory grown", f"{grown / 2**20:.1f} MiB")
        assert grown < SPARE_BYTES
        eventually(lambda: adds_up(before, held(agent)) == [], f"it holds no more than {before}")
        # The kernel keeps at most the last player of a port.
        for port in range(FIRST, FIRST + agent.ports):
            assert len(machine.flows(port)) <= 1


def held(agent: KilledAgent) -> dict[str, int]:
    """The resources that the agent and its sessions hold, by kind."""
    process = Path(f"/proc/{agent.process.pid}")
    kernel = {kind: len(found) for kind, found in agent.machine.traces().items()}
    return {
        "fds": len(list((process / "fd").iterdir())),
        "threads": len(list((process / "task").iterdir())),
        **kernel,
    }


def adds_up(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """Resources that have grown by more than pools may open."""
    grown = {kind: after[kind] - count for kind, count in before.items() if after[kind] > count}
    pooled = grown.pop("fds", 0) + grown.pop("threads", 0)
    kinds = list(grown)
    if pooled > POOLS:
        kinds += ["fds", "threads"]
    return kinds
