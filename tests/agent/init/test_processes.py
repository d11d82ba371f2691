"""What a program inherits, and what its first process does for it."""

import os
import pty
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.init.binary import PATH
from agent.init.channel import REPORT
from agent.init.messages import Cause, Ended, Executed, Refused
from tests.agent.init.signals import EVERY, NOT_FORWARDED, TAKES_SIGNALS, UNTOUCHABLE
from tests.support.agent.init_process import NEW_PIDS, InitProcess, docker_init
from tests.support.harness import wait_until

SHOW = """
cat /proc/self/stat /proc/self/status /proc/self/limits
ls -l /proc/self/fd
"""
RESTRICTED = ("sh", "-c", 'umask 027; ulimit -n 200; cd /usr; exec "$@"', "sh")
OF_STATUS = (
    "Name|Umask|Tgid|Pid|PPid|Uid|Gid|Groups|NSpid|NSpgid|NSsid|Threads|SigPnd|ShdPnd|SigBlk"
    "|SigCgt|CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp"
)
CHANGES_SIGNALS = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM, signal.SIGABRT})
for number in (signal.SIGHUP, signal.SIGPIPE, signal.SIGTTOU, signal.SIGRTMAX):
    signal.signal(number, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that all users can enter, unlike `tmp_path`, with the program."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    shutil.copy(PATH, folder / "tiltyard-init")
    yield folder
    shutil.rmtree(folder)


def shown(text: str) -> dict[str, str]:
    """Take what does not differ between runs from the output of SHOW."""
    stat = text.splitlines()[0].split()
    status = re.findall(rf"(?m)^({OF_STATUS}):\s*(.*)$", text)
    limits = re.findall(r"(?m)^(Max .*?)  +(.*)$", text)
    descriptors = re.findall(r"(?m)(\d+) -> (pipe|/\S+)", text)
    return dict(status) | dict(limits) | dict(descriptors) | {"stat": " ".join(stat[3:8])}


@pytest.mark.root
def test_program_inherits_what_docker_init_would_give_it(tmp_path: Path) -> None:
    # All but ignored signals, which docker-init passes on from the starter of the engine.
    before = (*NEW_PIDS, *RESTRICTED)
    with InitProcess(tmp_path / "ours", before=before) as init:
        init.hand_over("sh", "-c", SHOW)
        ours = shown(init.output())
    with docker_init(["sh", "-c", SHOW], before) as process:
        theirs = shown(process.output())
    assert ours == theirs
    assert ours["Umask"] == "0027"
    assert ours["Max open files"].split() == ["200", "200", "files"]
    assert ours["NSpgid"].split()[-1] == "2"
    assert ours["SigBlk"] == "0" * 16
    assert {key for key in ours if key.isdigit()} == {"0", "1", "2", "3"}  # 3: ls reads the folder


@pytest.mark.root
def test_program_has_the_terminal_as_docker_init_would_give_it(tmp_path: Path) -> None:
    show = ["sh", "-c", "cat /proc/self/stat; tty"]
    before = ("setsid", "--ctty")

    def fields(text: str) -> list[str]:
        pid, _, _, _, group, session, terminal, foreground, *_ = text.split()
        assert text.endswith(f"{slave_name}\n")
        return [terminal, str(group == foreground), str(group == session), str(group == pid)]

    master, slave = pty.openpty()
    slave_name = os.ttyname(slave)
    with InitProcess(tmp_path, before=before, stdin=slave) as init:
        init.hand_over(*show)
        ours = fields(init.output())
    with docker_init(show, before, stdin=slave) as process:
        theirs = fields(process.output())
    assert ours == theirs
    assert ours[1] == "True"
    os.close(master)
    os.close(slave)


@pytest.mark.parametrize("in_place", [False, True])
def test_signals_have_their_defaults_whatever_they_were(tmp_path: Path, *, in_place: bool) -> None:
    with InitProcess(tmp_path, before=[sys.executable, "-c", CHANGES_SIGNALS]) as init:
        init.hand_over("cat", "/proc/self/status", in_place=in_place)
        status = dict(re.findall(r"(?m)^(Sig\w+):\s*(.*)$", init.output()))
        assert status["SigBlk"] == "0" * 16
        assert status["SigIgn"] == "0" * 16


def test_descriptors_of_its_parent_are_not_inherited(tmp_path: Path) -> None:
    secret = os.open(tmp_path / "secret", os.O_WRONLY | os.O_CREAT)
    with InitProcess(tmp_path / "channel", pass_fds=[secret]) as init:
        init.hand_over("ls", "-l", "/proc/self/fd")
        assert "secret" not in init.output()
    os.close(secret)


@pytest.mark.root
@pytest.mark.parametrize("is_ours", [True, False])
def test_forwards_the_signals_that_docker_init_forwards(tmp_path: Path, *, is_ours: bool) -> None:
    program = [sys.executable, "-c", TAKES_SIGNALS]
    with (
        InitProcess(tmp_path, before=NEW_PIDS)
        if is_ours
        else docker_init(program, NEW_PIDS) as process
    ):
        if isinstance(process, InitProcess):
            process.hand_over(*program)
        assert process.next_line() == "ready"
        for number in sorted(NOT_FORWARDED - UNTOUCHABLE):
            process.send(number)
        for number in sorted(EVERY - NOT_FORWARDED):
            process.send(number)
            assert process.next_line() == str(int(number))


@pytest.mark.root
def test_buries_orphans(tmp_path: Path) -> None:
    """`kill -0` reaches an orphan until it was buried."""
    script = """
        orphan=$(sh -c 'true >&2 & echo $!')
        while kill -0 $orphan; do :; done 2>/dev/null
        echo buried
        read line
        exit 6
    """
    with InitProcess(tmp_path, before=NEW_PIDS) as init:
        init.hand_over("sh", "-c", script)
        assert init.next_line() == "buried"
        init.end_input()
        assert init.exit_code() == 6


@pytest.mark.root
def test_ends_at_once_with_its_program_and_all_others(tmp_path: Path) -> None:
    with InitProcess(tmp_path, before=NEW_PIDS) as init:
        init.hand_over("sh", "-c", "sleep 1000 & exit 5")
        assert init.next_report() == Executed()
        assert isinstance(init.next_report(), Ended)
        assert init.exit_code() == 5
        assert init.output() == ""  # which the other one could write, too


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        ("exit 0", 0, 0),
        ("exit 1", 0x100, 1),
        ("exit 255", 0xFF00, 255),
        ("kill -TERM $$", 15, 143),
        ("kill -KILL $$", 9, 137),
        ("kill -64 $$", 64, 192),
        ("ulimit -c 0; kill -ABRT $$", 6, 134),
    ],
)
def test_ends_with_the_code_of_its_program(
    tmp_path: Path, script: str, status: int, code: int
) -> None:
    with InitProcess(tmp_path) as init:
        init.hand_over("sh", "-c", script)
        executed, ended = init.left_reports()
        assert executed == Executed()
        assert isinstance(ended, Ended)
        assert ended.status == status
        assert init.exit_code() == code


def test_full_report_loses_reports_and_blocks_nothing(tmp_path: Path) -> None:
    with InitProcess(tmp_path) as init:
        with (tmp_path / REPORT).open("wb", buffering=0) as report:
            os.set_blocking(report.fileno(), False)
            while report.write(b"x" * 4096):
                pass
            while report.write(b"x"):
                pass
            init.hand_over("sh", "-c", "exit 7")
            assert init.exit_code() == 7
        assert init.left_reports() == []


def test_missing_report_blocks_nothing(tmp_path: Path) -> None:
    with InitProcess(tmp_path, without=REPORT) as init:
        wait_until(lambda: init.state == "tiltyard-wait", "it waits")
        init.hand_over("sh", "-c", "exit 7")
        assert init.exit_code() == 7


def test_in_place_the_program_is_the_first_process(tmp_path: Path) -> None:
    with InitProcess(tmp_path, start_new_session=True) as init:
        script = "cat /proc/self/stat; echo $$; read line; exit 7"
        init.hand_over("sh", "-c", script, in_place=True)
        assert init.next_report() is None  # executed: the only writer has left
        _, _, _, parent, group, session, *_ = init.next_line().split()
        pid = str(init.process.pid)
        assert parent == pid
        assert group == pid
        assert session == pid
        assert init.next_line() == pid
        assert init.state == "sh"
        init.end_input()
        assert init.exit_code() == 7


@pytest.mark.root
def test_takes_little_memory_before_and_after_a_large_handover(tmp_path: Path) -> None:
    env = {f"N{i}": "x" * 1000 for i in range(1500)}
    with InitProcess(tmp_path, before=NEW_PIDS) as init:
        before = _kilobytes(init.pid)
        init.hand_over("sh", "-c", "read line", env=env)
        assert init.next_report() == Executed()
        after = _kilobytes(init.pid)
    pages = resource.getpagesize() / 4096
    for taken in (before, after):
        assert 0 < taken["RssAnon"] <= 40 * pages
        assert 0 < taken["VmRSS"] <= 150 * pages


@pytest.mark.root
def test_program_of_the_same_user_cannot_trace_it(open_folder: Path) -> None:
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    script = "read line; cat /proc/1/comm; kill -0 1 && echo reachable; cat /proc/1/environ"
    with InitProcess(
        open_folder / "channel", before=(*NEW_PIDS, *user), program=open_folder / "tiltyard-init"
    ) as init:
        init.hand_over("sh", "-c", script)
        assert init.next_report() == Executed()
        init.end_input()
        assert init.output().splitlines() == [
            "tiltyard-run",
            "reachable",
            "cat: /proc/1/environ: Permission denied",
        ]


@pytest.mark.root
def test_without_room_for_a_process_nothing_is_executed(open_folder: Path) -> None:
    user = ("setpriv", "--reuid=65533", "--regid=65533", "--clear-groups")
    with InitProcess(
        open_folder / "channel",
        before=(*user, "prlimit", "--nproc=1"),
        program=open_folder / "tiltyard-init",
    ) as init:
        init.hand_over("true")
        assert init.left_reports() == [Refused(11, Cause.RESOURCES)]
        assert init.exit_code() == 125


def _kilobytes(pid: int) -> dict[str, int]:
    status = Path(f"/proc/{pid}/status").read_text()
    return {name: int(size) for name, size in re.findall(r"(\w+):\s+(\d+) kB", status)}
