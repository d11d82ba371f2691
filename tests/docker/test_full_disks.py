"""Full and read-only disks of a host, whose games and agent continue."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from agent.domain.containers.engine import LABEL_AGENT
from tests.docker.machine import ENDED, Agent, Player, a_machine, port_of, reason
from tests.docker.stack import eventually
from tests.faults.invariants import session_of
from tests.faults.plugin import Rounds
from tests.faults.records import recorded_sessions
from tests.support.private_engine import small_disk
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.contract import State

pytestmark = pytest.mark.slow

PORTS = 5
ENGINE_MEBIBYTES = 128
STATE_MEBIBYTES = 64
LIE_SECONDS = 90.0  # Timeout for an end that the engine denies: 30 s and the sealing of the log
SILENT = ("--lines-per-second", "0")  # Without output: an engine without space would lose it


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Fill a disk, and any block that becomes free meanwhile."""
    filler = disk / "filler"
    over = threading.Event()

    def fill() -> None:
        with filler.open("ab", buffering=0) as file:
            while not over.wait(0.002):
                for size in (2**20, 4096):
                    with contextlib.suppress(OSError):
                        while not over.is_set():
                            file.write(b"x" * size)

    thread = threading.Thread(target=fill, name="filler")
    thread.start()
    try:
        eventually(lambda: _is_full(disk), "it is full")
        yield
    finally:
        over.set()
        thread.join()
        filler.unlink()


def _is_full(disk: Path) -> bool:
    """Report whether a disk is full also once its file system has freed what was removed."""
    folder = os.open(disk, os.O_RDONLY)
    try:
        os.fsync(folder)  # ext4 gives freed blocks to others when it commits its journal
    finally:
        os.close(folder)
    return os.statvfs(disk).f_bavail == 0


@contextmanager
def read_only(disk: Path) -> Iterator[None]:
    """Remount a disk read-only, as the kernel does after a failure."""
    remount("ro", disk)
    try:
        yield
    finally:
        remount("rw", disk)


def remount(how: str, disk: Path) -> None:
    """Remount a disk once no write is in progress."""
    command = ["mount", "-o", f"remount,{how}", str(disk)]
    eventually(
        lambda: subprocess.run(command, check=False, timeout=30).returncode == 0,
        f"it is mounted {how}",
    )


@contextmanager
def engine_misses_the_end_of(pid: int) -> Iterator[None]:
    """Kill a container's process so that its engine believes it still runs."""
    shim = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(shim, signal.SIGSTOP)
    try:
        os.kill(pid, signal.SIGKILL)
        yield
    finally:
        os.kill(shim, signal.SIGCONT)


def says_full(agent: Agent) -> bool:
    """Whether the agent says that it starts no session because of too little space."""
    return any("no session is started" in each for each in agent.warnings)


def refused_start(agent: Agent) -> str:
    """Return why a start is refused, which leaves nothing.

    A start in a prepared container needs one line in the journal of claims, and one new file. It
    succeeds as long as the journal's last block and a file that was just replaced leave the room.
    """
    while True:
        before = set(containers(agent))
        try:
            session = agent.play()
        except grpc.RpcError as error:
            assert set(containers(agent)) == before
            return reason(error)
        agent.end(session)


def starts_again(agent: Agent) -> pb.Session:
    """Start a session as soon as the agent notices free space."""
    eventually(lambda: not agent.warnings, "there is room again")
    return agent.play(*SILENT)


@pytest.mark.timeout(600)
def test_f34_a_full_disk_of_the_engine_refuses_starts_and_hides_no_end(
    tmp_path: Path, rounds: Rounds
) -> None:
    with (
        small_disk(tmp_path, ENGINE_MEBIBYTES) as disk,
        a_machine(data_root=disk) as machine,
        Agent(machine, PORTS) as agent,
    ):
        agent.engine_forgets = True
        process = agent.process.pid
        for _ in range(rounds(1, 5)):
            plays, stopped, killed = (agent.play(*SILENT) for _ in range(3))
            with Player(machine, port_of(plays)) as player, full(disk):
                eventually(lambda: says_full(agent), "the disk is seen to be full")
                assert agent.refusal() == "DISK_FULL"
                with engine_misses_the_end_of(agent.session(killed).pid):
                    agent.until(killed, *ENDED, patience=LIE_SECONDS)  # seen by its process
                    assert containers(agent)[killed.internal_id] == "running"
                assert agent.session(killed).detail.startswith("the engine lists it as running")
                agent.end(stopped)
                eventually(
                    lambda killed=killed: killed.internal_id not in containers(agent),  # type: ignore[misc]
                    "ended containers go while the disk is full",
                    patience=LIE_SECONDS,
                )
                player.seen_as(plays)
            player_of = starts_again(agent)
            with Player(machine, port_of(player_of)) as player:
                player.seen_as(player_of)
            assert agent.session(plays).state == pb.STATE_RUNNING
            for session in (plays, player_of):
                agent.end(session)
        assert agent.process.pid == process


def containers(agent: Agent) -> dict[str, str]:
    """The state of each session's container in the engine's list, which no call delays."""
    sessions = recorded_sessions(agent.state_dir)
    found = agent.machine.client.api.containers(all=True, filters={"label": LABEL_AGENT})
    states = {}
    for each in found:
        name = each["Names"][0].removeprefix("/")
        owner = session_of(each["Id"], name, each["Labels"], sessions)
        if owner:
            states[owner] = each["State"]
    return states


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(full, id="full"),
        pytest.param(read_only, id="read-only", marks=pytest.mark.thorough),
    ],
)
def test_f35_a_state_directory_that_cannot_be_written_refuses_starts_and_disturbs_no_session(
    tmp_path: Path,
    rounds: Rounds,
    fault: Callable[[Path], contextlib.AbstractContextManager[None]],
) -> None:
    with small_disk(tmp_path, STATE_MEBIBYTES) as disk, a_machine() as machine:
        agent = Agent(machine, PORTS)
        agent.state_dir = disk / "state"
        agent.settings["state_dir"] = str(agent.state_dir)
        with agent:
            process = agent.process.pid
            for _ in range(rounds(1, 5)):
                plays = agent.play()
                stopped = agent.play()
                due = agent.play(ttl=15)
                with Player(machine, port_of(plays)) as player, fault(disk):
                    assert refused_start(agent) == "DISK_FULL"
                    agent.end(stopped)
                    assert agent.session(stopped).end_reason == pb.END_REASON_STOPPED
                    # Its lifetime is kept from memory.
                    assert agent.until(due, *ENDED).end_reason == pb.END_REASON_TTL
                    eventually(lambda: bool(agent.warnings), "the disk is seen to be amiss")
                    player.seen_as(plays)
                again = starts_again(agent)
                eventually(
                    lambda ended=(stopped, due): (
                        {each.internal_id for each in ended} <= sealed(agent)
                    ),  # type: ignore[misc]
                    "what ended meanwhile is recorded and sealed",
                    patience=LIE_SECONDS,
                )
                for session in (plays, again):
                    agent.end(session)
            assert agent.process.pid == process


def sealed(agent: Agent) -> set[str]:
    """The sessions whose records have the end and the sealed log."""
    return {
        each.internal_id
        for each in recorded_sessions(agent.state_dir)
        if each.state is State.EXITED and each.log_sealed
    }
