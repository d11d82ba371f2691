"""Games while their engine is killed, hangs or is rebooted."""

import contextlib
import signal
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tests.docker.killed_agent import KilledAgent
from tests.docker.machine import ENDED, Agent, Machine, Player, a_machine, port_of
from tests.docker.stack import PATIENCE, eventually
from tests.faults.plugin import Figure, Rounds
from tests.support.agent.samples import an_id
from tests.support.real_engine import ends
from tiltyard.agent.v1 import agent_pb2 as pb

HANGS = (30, 600)  # Seconds; the second in the long form alone
UNAVAILABLE = {"ENGINE_ERROR", "ENGINE_TIMEOUT", "ENGINE_UNAVAILABLE"}
NOISE_BYTES = 30 * 10**6  # More than all buffers between the engine and a caller


def _kill(pid: int) -> None:
    """Kill a process of the private engine, unless it is gone, and wait for its end."""
    with contextlib.suppress(ProcessLookupError):
        assert ends(pid, signal.SIGKILL, PATIENCE)
    eventually(lambda: not _lives(pid), f"process {pid} is gone")


def _lives(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


@pytest.mark.slow
def test_f07_games_go_on_while_the_engine_is_killed_and_comes_back(
    machine: Machine, rounds: Rounds, figure: Figure
) -> None:
    with Agent(machine, ports=3) as agent, contextlib.ExitStack() as stack:
        sessions = [agent.play(), agent.play(restart=True)]
        before = agent.processes()
        players = [
            (stack.enter_context(Player(machine, port_of(session))), session)
            for session in sessions
        ]

        def assert_playing() -> None:
            for player, session in players:
                assert player.seen_as(session) == player.address

        assert_playing()
        for _ in range(rounds(2, 10)):
            machine.engine.kill()
            assert_playing()  # without an engine
            eventually(lambda: not agent.engine_available, "it is noticed")
            machine.engine.start()
            eventually(lambda: agent.engine_available, "it is noticed that it is back")
            assert_playing()
        figure("longest gaps", " and ".join(f"{each.longest_gap:.2f} s" for each, _ in players))
        agent.assert_undisturbed(before, *sessions)
        third = agent.play()  # and new ones can be started
        for session in (*sessions, third):
            agent.end(session)
        agent.assert_ports_agree()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_f09_a_lifetime_ends_the_game_while_the_engine_hangs(
    machine: Machine, rounds: Rounds, figure: Figure
) -> None:
    hangs = HANGS[: rounds(1, 2)]
    with Agent(machine, ports=3, prepared=0) as agent:
        # An engine that hangs reads no output: at 64 KiB a game would wait for it.
        other = agent.play("--lines-per-second", "1")
        with Player(machine, port_of(other)) as player:
            for seconds in hangs:
                _hangs_for(seconds, agent, player, other)
    figure("hangs", " and ".join(f"{seconds} s" for seconds in hangs))


def _hangs_for(seconds: float, agent: Agent, player: Player, other: pb.Session) -> None:
    session = agent.play(ttl=2)
    asked = an_id()
    process = agent.processes()[session.internal_id]
    with agent.machine.engine.hanging():
        over = time.monotonic() + seconds
        eventually(lambda: not _lives(process), "it is ended past the engine", patience=50)
        with pytest.raises(grpc.RpcError):
            agent.play(internal_id=asked)
        while time.monotonic() < over:
            assert agent.session(other).state == pb.STATE_RUNNING  # the agent stays responsive
            player.wait_for_more_answers(other.internal_id)
    assert agent.until(session, pb.STATE_EXITED).end_reason == pb.END_REASON_TTL
    agent.end(agent.until_plays(internal_id=asked))  # the start is repeated
    assert player.seen_as(other) == player.address
    agent.assert_ports_agree(other)


@pytest.mark.slow
def test_f10_a_session_whose_engine_calls_hang_holds_up_no_other(machine: Machine) -> None:
    with KilledAgent(machine, ports=3, stop_grace=1) as agent:
        hung = agent.play("--write-file", "/data/save", str(NOISE_BYTES))
        other = agent.play()
        process = agent.processes()[hung.internal_id]
        eventually(lambda: bool(agent.log(hung)), "it has written its file")
        with (
            Player(machine, port_of(other)) as player,
            _locked(machine, agent.container_of(hung).id),
        ):
            stopping = agent.stopping(hung, timeout=None)  # until the engine answers again
            for _ in range(3):
                agent.end(agent.play())
            eventually(lambda: not _lives(process), "it is ended past the engine", patience=50)
            assert agent.session(hung).state == pb.STATE_SHUTTINGDOWN  # as the engine confirms it
            agent.end(agent.play())
            assert agent.engine_available
            assert player.seen_as(other) == player.address
        assert stopping.result(PATIENCE).session.state == pb.STATE_EXITED
        agent.assert_ports_agree(other)


@contextlib.contextmanager
def _locked(machine: Machine, container: str) -> Iterator[None]:
    """Have the engine hold the lock of a container, for an archive that nobody reads on."""
    with socket.socket(socket.AF_UNIX) as unread:
        unread.connect(str(machine.engine.socket))
        path = f"/v1.41/containers/{container}/archive?path=/data"
        unread.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert unread.recv(12) == b"HTTP/1.1 200"
        yield


def test_f11_a_game_that_dies_with_its_shim_is_found_to_have_ended(machine: Machine) -> None:
    with Agent(machine, ports=3) as agent:
        session = agent.play()
        other = agent.play()
        process = agent.processes()[session.internal_id]
        shim = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        _kill(shim)
        _kill(process)
        agent.until(session, *ENDED, patience=50)  # whatever the engine says
        assert agent.session(other).state == pb.STATE_RUNNING
        agent.end(other)
        agent.until(other, pb.STATE_EXITED)


@pytest.mark.slow
def test_f11_games_go_on_while_containerd_is_killed_and_comes_back(machine: Machine) -> None:
    with Agent(machine, ports=4, prepared=0) as agent:
        session = agent.play()
        ending = agent.play()
        before = agent.processes()
        with Player(machine, port_of(session)) as player:
            player.seen_as(session)
            machine.engine.kill_containerd()
            assert player.seen_as(session) == player.address
            assert agent.refusal() in UNAVAILABLE
            _kill(before[ending.internal_id])
            machine.engine.start_containerd()
            agent.until(ending, *ENDED, patience=90)
            agent.end(agent.until_plays())
            assert player.seen_as(session) == player.address
        assert agent.processes()[session.internal_id] == before[session.internal_id]
        agent.assert_ports_agree(session)
        agent.end(session)
        agent.assert_ports_agree()


@pytest.mark.slow
def test_f08_without_live_restore_games_end_with_the_engine_or_start_again_and_it_is_said() -> (
    None
):
    with (
        a_machine(live_restore=False) as machine,
        Agent(machine, ports=3, stop_grace=0.3) as agent,
    ):
        assert any("live-restore" in warning for warning in agent.warnings)
        ended = agent.play()
        # A game that exits with 0 when the engine stops it is not restarted.
        restarted = agent.play("--ignore-sigterm", restart=True)
        before = agent.processes()
        machine.engine.kill()
        machine.engine.start()
        agent.until(ended, pb.STATE_EXITED)
        eventually(lambda: agent.session(restarted).restart_count >= 1, "it was started again")
        agent.until(restarted, pb.STATE_RUNNING)
        assert agent.processes()[restarted.internal_id] != before[restarted.internal_id]
        agent.assert_ports_agree(restarted)
        agent.end(restarted)
        agent.assert_ports_agree()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_f45_after_a_power_cut_what_asks_for_restarts_runs_again_and_the_rest_has_ended(
    machine: Machine, tmp_path: Path, rounds: Rounds
) -> None:
    boot_id = tmp_path / "boot_id"
    boot_id.write_text(f"{uuid.uuid4()}\n")
    count = rounds(4, 20)
    with Agent(machine, ports=count + 2) as agent:
        ended = [agent.play() for _ in range(2)]
        restarted = [agent.play(restart=True) for _ in range(count)]
        agent.kill()
        machine.engine.power_off()
        machine.engine.start()
        bind = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'
        mounted = ("unshare", "--mount", "sh", "-c", bind, str(boot_id))
        agent.wrapper = machine.engine.network.inside(*mounted)
        agent.start()
        for session in ended:
            found = agent.until(session, pb.STATE_EXITED)
            assert found.end_reason == pb.END_REASON_HOST_RESTART
        for session in restarted:
            eventually(lambda: agent.session(session).restart_count == 1, "it runs again")  # noqa: B023
            assert agent.session(session).state == pb.STATE_RUNNING
            with Player(machine, port_of(session)) as player:
                assert player.seen_as(session) == player.address
        agent.assert_ports_agree(*restarted)
        agent.end(agent.play())
