"""Logs through the public API with killed agents, full disks and floods."""

import contextlib
import http.client
import threading
from pathlib import Path
from typing import Any

import pytest

from agent.domain.containers.engine import LOG_BYTES
from agent.logs.sealed import DROPPED
from tests.demo_game import Image
from tests.docker.stack import Stack, a_stack, eventually, play_round
from tests.docker.test_sessions import numbered
from tests.faults.real_host import SEAL_PATIENCE
from tests.faults.records import recorded_sessions
from tests.support.private_engine import small_disk

DISK_MEBIBYTES = 64
FREE_BYTES = 4 * 2**20  # Free disk space: enough for records, too little for the log


def log_answers(stack: Stack, session_id: str) -> bool:
    return stack.client.get("/logs", id=session_id).status == 200


def sealed(stack: Stack) -> list[bool]:
    """Whether each session's log is sealed."""
    return sorted(each.log_sealed for each in recorded_sessions(stack.agent.state_dir))


def written(pid: int) -> int:
    """Bytes that a container's game has written so far. `pid`: of its init."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    counters = Path(f"/proc/{children[0]}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in counters)["wchar"])


def whole_log(stack: Stack, session_id: str) -> list[int]:
    return numbered(stack.client.get("/logs", id=session_id).expect(200).body)


@pytest.mark.slow
def test_follower_is_cut_off_with_the_agent_and_can_read_all_again(stack: Stack) -> None:
    made = stack.start(args=["--lines-per-second", "200"])
    for _ in range(3):
        with stack.client.stream("/logs", id=made["id"], follow="true") as log:
            seen = [log.readline() for _ in range(50)]
            stack.agent.kill()
            with pytest.raises((http.client.IncompleteRead, ConnectionError)):
                log.read()  # must not look like the end of the log
        assert numbered(b"".join(seen)) == list(range(1, 51))
        stack.agent.start()
        eventually(lambda: log_answers(stack, made["id"]), "it is adopted")
    with stack.client.stream("/logs", id=made["id"], follow="true") as log:
        stack.end(made["id"])
        read_numbers = numbered(log.read())
    assert read_numbers == list(range(1, len(read_numbers) + 1))
    assert whole_log(stack, made["id"]) == read_numbers


@pytest.mark.parametrize(
    "step",
    [
        "log.copied",
        pytest.param("log.sealed", marks=pytest.mark.slow),
    ],
)
def test_sigkill_of_the_agent_while_it_seals_a_log(
    docker_engine: Path, demo_image: Image, step: str
) -> None:
    with a_stack(docker_engine, demo_image, failpoint=f"{step}:kill") as stack:
        made = stack.start(args=["--lines-per-second", "500"])
        with stack.client.stream("/logs", id=made["id"], follow="true") as log:
            seen = numbered(b"".join(log.readline() for _ in range(200)))
        for container in stack.containers().values():
            container.kill("SIGTERM")
        eventually(lambda: stack.agent.process.returncode == -9, f"killed at {step}")
        assert sealed(stack) == [False]
        assert len(stack.containers()) == 1
        stack.restart_agent()
        eventually(lambda: sealed(stack) == [True], "it is sealed after all")
        for container in stack.containers().values():
            container.remove()
        eventually(lambda: log_answers(stack, made["id"]), "the host is back")
        kept = stack.client.get("/logs", id=made["id"]).expect(200).body
        assert kept.endswith(b" SIGTERM: saving\n")
        read_numbers = numbered(kept)
        assert read_numbers == list(range(1, len(read_numbers) + 1))
        assert seen == list(range(1, 201))
        assert read_numbers[: len(seen)] == seen


@pytest.mark.slow
def test_f33_a_full_disk_disturbs_no_game_and_loses_no_log(
    docker_engine: Path, demo_image: Image, tmp_path: Path
) -> None:
    with (
        small_disk(tmp_path, DISK_MEBIBYTES) as disk,
        a_stack(docker_engine, demo_image, state_dir=str(disk / "state")) as stack,
    ):
        stack.agent.state_dir = disk / "state"
        other = stack.start()
        others = stack.containers()
        loud = stack.start(args=["--flood", "0", "--flood-bytes", "12000000"])
        [container] = [each for name, each in stack.containers().items() if name not in others]
        eventually(lambda: b" flood over\n" in container.logs(tail=1000), "it has written it")
        filler = disk / "filler"
        filler.write_bytes(b"x" * (DISK_MEBIBYTES * 2**20 - 8 * 2**20 - FREE_BYTES))
        container.kill("SIGTERM")
        stack.until(loud["id"], "exited")
        agent_says = "cannot seal the log"
        eventually(lambda: stack.agent.process.has_logged(agent_says), "no space on the disk")
        play_round(other)
        read_numbers = whole_log(stack, loud["id"])
        assert read_numbers == list(range(1, len(read_numbers) + 1))
        stack.end(other["id"])
        filler.unlink()
        eventually(lambda: sealed(stack) == [True, True], "both are sealed")
        assert whole_log(stack, loud["id"]) == read_numbers


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("flood_with", ["lines", "bytes"])
def test_f31_a_flood_ends_with_a_reason_of_its_own(
    docker_engine: Path, demo_image: Image, flood_with: str
) -> None:
    """Its output costs the engine more than its own CPU limit says."""
    limits: dict[str, Any] = {"session_log_lines": 5000, "session_log_bytes": 8 * 2**20}
    with a_stack(docker_engine, demo_image, **limits) as stack:
        quiet = stack.start(args=["--lines-per-second", "100"])
        loud = stack.start(args=["--flood", "0", "--flood-with", flood_with])
        warning = "log limit exceeded"
        eventually(lambda: warning in stack.agent.process.tail(), "operators see it")
        stack.until(loud["id"], "exited", patience=150.0)
        report = stack.report(loud["id"])
        assert report["end_reason"] == "log"
        assert "session_log_lines" in report["detail"]
        play_round(quiet)
        stack.end(quiet["id"])


@pytest.mark.slow
def test_f31_a_flood_leaves_the_agent_small_and_others_alone(stack: Stack) -> None:
    """A game at full speed; some followers read nothing after the first line."""
    loud = stack.start(args=["--flood", "0", "--flood-with", "bytes"])
    [process] = stack.pids().values()
    quiet = stack.start(args=["--lines-per-second", "100"])
    with contextlib.ExitStack() as stalled:
        for _ in range(5):
            stream = stack.client.stream("/logs", id=loud["id"], follow="true")
            stalled.enter_context(stream).readline()
        readers = [threading.Thread(target=drain, args=(stack, loud["id"])) for _ in range(2)]
        for reader in readers:
            reader.start()
        with stack.client.stream("/logs", id=quiet["id"], follow="true") as log:
            read_numbers: list[int] = []
            while len(read_numbers) < 600 or written(process) < 2 * LOG_BYTES:
                read_numbers += numbered(log.readline())
        assert read_numbers == list(range(1, len(read_numbers) + 1))
        status = Path(f"/proc/{stack.agent.process.pid}/status").read_text()
        stack.end(loud["id"])
        for reader in readers:
            reader.join()
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    assert int(fields["VmHWM"].split()[0]) < 300 * 1024
    assert int(fields["Threads"]) < 60
    stack.end(quiet["id"])
    eventually(lambda: sealed(stack) == [True, True], "both are sealed", patience=SEAL_PATIENCE)
    for container in stack.containers().values():
        container.remove()
    # The agent serves the sealed log once the record that says so is flushed.
    eventually(lambda: log_answers(stack, loud["id"]), "the sealed log is served")
    kept = stack.client.get("/logs", id=loud["id"]).expect(200).body
    assert kept.startswith(DROPPED.partition(b"%")[0])
    assert LOG_BYTES // 2 < len(kept) <= LOG_BYTES


def drain(stack: Stack, session_id: str) -> None:
    """Read to the end at full speed."""
    with stack.client.stream("/logs", id=session_id, follow="true", timeout=60) as log:
        while log.read(2**18):
            continue
