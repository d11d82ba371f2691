import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.domain.sessions.session import Process
from agent.kernel import processes
from agent.kernel.processes import folder_of, live_process, members_of

PROGRAM = """
import signal, subprocess, sys
signal.signal(signal.SIGUSR1, print)
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
child = subprocess.Popen(["sleep", "1000"])
print(child.pid, flush=True)
child.wait()
sys.stdin.read()
"""
LEADERLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
print("", flush=True)
ctypes.CDLL(None).syscall(60, 0)
"""
"""Its first thread ends with exit(2) alone: call 60 of x86-64."""


@contextlib.contextmanager
def running(program: str) -> Iterator[tuple[Process, str]]:
    """A process and the first line that it writes."""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as begun:
        assert begun.stdout is not None
        line = begun.stdout.readline().decode()
        process = live_process(begun.pid)
        assert process is not None
        yield process, line
        begun.kill()


def test_a_process_and_its_descendants_are_found() -> None:
    with running(PROGRAM) as (first, line):
        child = int(line)
        found = members_of(first)
        os.kill(child, signal.SIGKILL)
    assert [member.process.pid for member in found] == [first.pid, child]
    assert [member.parent for member in found] == [os.getpid(), first.pid]
    assert found[1].name == "sleep"


def test_signals_that_it_handles_and_ignores_are_known() -> None:
    with running(PROGRAM) as (first, line):
        os.kill(first.pid, signal.SIGUSR2)
        member = members_of(first)[0]
        os.kill(int(line), signal.SIGKILL)
    assert member.catches(signal.SIGUSR1)
    assert not member.catches(signal.SIGTERM)
    assert member.ignores(signal.SIGINT)
    assert not member.ignores(signal.SIGUSR1)
    assert member.listens_for(signal.SIGUSR1)
    assert member.listens_for(signal.SIGUSR2)  # which it blocks, as to read it by a call
    assert not member.listens_for(signal.SIGINT)
    assert not member.listens_for(signal.SIGTERM)
    assert member.waits_for(signal.SIGUSR2)
    assert not member.waits_for(signal.SIGUSR1)


def test_ended_processes_are_not_found() -> None:
    with running(PROGRAM) as (first, line):
        os.kill(int(line), signal.SIGSTOP)
        os.kill(first.pid, signal.SIGSTOP)  # it cannot bury its child
        os.kill(int(line), signal.SIGKILL)
        os.waitid(os.P_PID, first.pid, os.WSTOPPED)
        while live_process(int(line)) is not None:
            pass
        assert [member.process for member in members_of(first)] == [first]
    assert members_of(first) == []


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of exit(2)")
def test_process_whose_first_thread_has_ended_is_live() -> None:
    with running(LEADERLESS) as (first, _):
        status = Path(f"/proc/{first.pid}/status")
        while "zombie" not in status.read_text():
            pass
        assert [member.process for member in members_of(first)] == [first]


def test_another_process_with_its_id_is_not_found() -> None:
    with running(PROGRAM) as (first, line):
        assert members_of(Process(first.pid, first.start_ticks + 1)) == []
        os.kill(int(line), signal.SIGKILL)


def test_process_that_ends_meanwhile_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(PROGRAM) as (first, line):
        os.kill(int(line), signal.SIGKILL)
    monkeypatch.setattr(processes, "live_process", lambda _: first)
    assert members_of(first) == []


@pytest.mark.parametrize(
    ("groups", "folder"),
    [
        ("0::/docker/c\n", "docker/c"),
        ("1:name=systemd:/docker/c\n0::/\n", "systemd/docker/c"),
        ("5:cpu,cpuacct:/docker/c\n0::/\n", "cpuacct/docker/c"),
        ("0::/docker/c\n", "unified/docker/c"),
        ("2:pids:/\n0::/\n", "pids"),
    ],
)
def test_control_group_of_each_version_is_found(tmp_path: Path, groups: str, folder: str) -> None:
    found = tmp_path / folder
    found.mkdir(parents=True)
    (found / "cgroup.procs").touch()
    assert folder_of(groups, tmp_path) == found


def test_control_group_that_is_not_mounted_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no control group"):
        folder_of("0::/docker/c\n", tmp_path)
