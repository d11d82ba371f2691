"""Hand-overs to a real init that waits: complete, half, broken, several, none."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from agent.init.binary import PATH
from agent.init.channel import REPORT, START
from agent.init.messages import Cause, Ended, Executed, Refused
from tests.agent.init.signals import ENDS_NO_WAIT, EVERY, FAULTS, NOT_FORWARDED, UNTOUCHABLE
from tests.support.agent.handovers import ACCEPTED, GOOD, REFUSED, REFUSED_IN_PLACE, in_place, raw
from tests.support.agent.init_process import PATIENCE, InitProcess
from tests.support.harness import wait_until

BROKEN = Refused(71, Cause.HAND_OVER)
STOPPED = Refused(4, Cause.OTHER)


def is_handed(init: InitProcess) -> bool:
    return init.state == "tiltyard-hand"


def test_waits_then_runs_and_ends_with_the_program(tmp_path: Path) -> None:
    with InitProcess(tmp_path) as init:
        assert init.state == "tiltyard-wait"
        init.hand_over("sh", "-c", "read line; exit 3")
        assert init.next_report() == Executed()
        assert init.state == "tiltyard-run"
        before = time.time_ns()
        init.end_input()
        [ended] = init.left_reports()
        assert isinstance(ended, Ended)
        assert ended.status == 3 << 8
        assert before <= ended.time_ns <= time.time_ns()
        assert init.exit_code() == 3


@pytest.mark.parametrize("data", ACCEPTED.values(), ids=ACCEPTED)
def test_executes_valid_handover(tmp_path: Path, data: bytes) -> None:
    with InitProcess(tmp_path) as init:
        init.write(data)
        assert init.next_report() == Executed()
        assert init.exit_code() == 0


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_broken_handover_executes_nothing(tmp_path: Path, data: bytes) -> None:
    with InitProcess(tmp_path) as init:
        init.write(data)
        assert init.left_reports() == [BROKEN]
        assert init.exit_code() == 125
        assert init.output() == ""


@pytest.mark.parametrize("data", REFUSED_IN_PLACE.values(), ids=REFUSED_IN_PLACE)
def test_broken_handover_executes_nothing_in_place(tmp_path: Path, data: bytes) -> None:
    test_broken_handover_executes_nothing(tmp_path, data)


@pytest.mark.parametrize("data", ACCEPTED.values(), ids=ACCEPTED)
def test_executes_valid_handover_in_place(tmp_path: Path, data: bytes) -> None:
    with InitProcess(tmp_path) as init:
        init.write(in_place(data))
        assert init.left_reports() == []
        assert init.exit_code() == 0


def test_handover_may_arrive_byte_by_byte(tmp_path: Path) -> None:
    with InitProcess(tmp_path) as init:
        descriptor = init.open_start()
        for index in range(len(GOOD)):
            os.write(descriptor, GOOD[index : index + 1])
        os.close(descriptor)
        assert init.next_report() == Executed()


def test_does_not_wait_for_the_writer_to_leave(tmp_path: Path) -> None:
    with InitProcess(tmp_path) as init:
        descriptor = init.open_start()
        os.write(descriptor, GOOD)
        assert init.next_report() == Executed()
        os.close(descriptor)


def test_begun_handover_shows_before_it_is_complete(tmp_path: Path) -> None:
    with InitProcess(tmp_path) as init:
        descriptor = init.open_start()
        os.write(descriptor, GOOD[:1])
        wait_until(lambda: is_handed(init), "the state shows")
        os.write(descriptor, GOOD[1:-1])
        assert is_handed(init)
        os.write(descriptor, GOOD[-1:])
        assert init.next_report() == Executed()
        os.close(descriptor)


def test_second_handover_of_a_run_is_not_read(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    channel = tmp_path / "channel"
    ready = raw([b"sh", b"-c", b"echo once >>$0; echo ready; read line", bytes(ran)])
    with InitProcess(channel) as init:
        init.write(ready + ready)
        assert init.next_report() == Executed()
        assert init.next_line() == "ready"
        with pytest.raises(OSError, match="No such device"):
            init.open_start()
        init.process.send_signal(signal.SIGTERM)
        assert init.exit_code() == 128 + signal.SIGTERM
    assert ran.read_text() == "once\n"


@pytest.mark.parametrize("number", sorted(EVERY - NOT_FORWARDED - ENDS_NO_WAIT))
def test_stop_ends_the_wait(tmp_path: Path, number: int) -> None:
    with InitProcess(tmp_path) as init:
        init.process.send_signal(number)
        assert init.left_reports() == []
        assert init.exit_code() == 128 + number


@pytest.mark.parametrize("number", sorted(ENDS_NO_WAIT | (NOT_FORWARDED - FAULTS - UNTOUCHABLE)))
def test_signal_that_ends_no_process_ends_no_wait(tmp_path: Path, number: int) -> None:
    with InitProcess(tmp_path) as init:
        init.process.send_signal(number)
        init.write(GOOD)
        assert init.next_report() == Executed()


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("arrived", [8, 40])
def test_stop_during_a_handover_executes_nothing(
    tmp_path: Path, arrived: int, *, in_place: bool
) -> None:
    data = raw([b"echo", b"executed"], mode=int(in_place))
    has_child = arrived > 28 and not in_place
    with InitProcess(tmp_path) as init:
        descriptor = init.open_start()
        os.write(descriptor, data[:arrived])
        wait_until(lambda: is_handed(init), "the state shows")
        if has_child:
            wait_until(lambda: _has_child(init), "the child reads")
        init.process.send_signal(signal.SIGTERM)
        assert init.left_reports() == ([STOPPED] if has_child else [])
        assert init.exit_code() == 128 + signal.SIGTERM
        os.close(descriptor)
        assert init.output() == ""


def test_without_start_it_fails(tmp_path: Path) -> None:
    with InitProcess(tmp_path, without=START) as init:
        assert init.left_reports() == [Refused(2, Cause.HAND_OVER)]
        assert init.exit_code() == 125


def test_without_a_channel_it_fails(tmp_path: Path) -> None:
    (tmp_path / "channel").mkdir()
    with InitProcess(tmp_path / "channel", seen_as=tmp_path / "none", without=REPORT) as init:
        assert init.exit_code() == 125


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--check"], 0, ""),
        ([], 125, "usage: tiltyard-init FOLDER | --check\n"),
        (["/run", "/run"], 125, "usage: tiltyard-init FOLDER | --check\n"),
    ],
)
def test_check_succeeds_and_other_uses_show_how_to(
    arguments: list[str], code: int, text: str
) -> None:
    done = subprocess.run(
        [PATH, *arguments], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == code
    assert done.stderr == text


def _has_child(init: InitProcess) -> bool:
    return bool(Path(f"/proc/{init.pid}/task/{init.pid}/children").read_text())
