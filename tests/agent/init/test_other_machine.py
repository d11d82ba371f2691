"""The init for aarch64, cross-built, under an emulator of that processor.

`qemu-aarch64` translates instructions and passes system calls on to this machine's kernel: it
shows that numbers, structures and the entry point are those of aarch64, but not how a kernel of
such a machine maps and starts the program. What the init executes are programs of this machine.
"""

import os
import platform
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.init.binary import init_program
from agent.init.messages import Cause, Ended, Executed, Refused
from tests.agent.init.signals import TAKES_SIGNALS
from tests.support.agent.init_process import PATIENCE, InitProcess, children_of
from tests.support.harness import ROOT

pytestmark = [
    pytest.mark.root,  # where `make test` installs the compiler and the emulator
    pytest.mark.skipif(platform.machine() != "x86_64", reason="this machine may be of that kind"),
]
EMULATOR = "qemu-aarch64"


@pytest.fixture(scope="module")
def foreign() -> Path:
    assert shutil.which(EMULATOR), "there is no emulator: install the package qemu-user"
    target = "build/init/aarch64/tiltyard-init"
    built = subprocess.run(
        ["make", "--silent", target],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert built.returncode == 0, built.stderr
    return ROOT / target


@pytest.mark.parametrize("in_place", [False, True])
def test_waits_executes_and_ends(foreign: Path, tmp_path: Path, *, in_place: bool) -> None:
    with InitProcess(tmp_path, before=[EMULATOR], program=foreign, env={"A": "1"}) as init:
        assert init.state == "tiltyard-wait"
        init.hand_over("sh", "-c", 'echo "$A $B"; exit 3', env={"B": "2"}, in_place=in_place)
        assert init.output() == "1 2\n"
        reports = init.left_reports()
        assert init.exit_code() == 3
    if in_place:
        assert reports == []
    else:
        executed, ended = reports
        assert executed == Executed()
        assert isinstance(ended, Ended)
        assert ended.status == 3 << 8


@pytest.mark.parametrize(
    ("program", "refused", "code"),
    [
        ("/nowhere/game", Refused(2, Cause.MISSING), 127),
        ("/", Refused(13, Cause.PERMISSION), 126),
    ],
)
def test_refuses(foreign: Path, tmp_path: Path, program: str, refused: Refused, code: int) -> None:
    with InitProcess(tmp_path, before=[EMULATOR], program=foreign) as init:
        init.hand_over(program)
        assert init.left_reports() == [refused]
        assert init.exit_code() == code


def test_refuses_broken_handover(foreign: Path, tmp_path: Path) -> None:
    with InitProcess(tmp_path, before=[EMULATOR], program=foreign) as init:
        init.write(b"TYSTART1")
        assert init.left_reports() == [Refused(71, Cause.HAND_OVER)]
        assert init.exit_code() == 125


def test_stop_ends_the_wait(foreign: Path, tmp_path: Path) -> None:
    with InitProcess(tmp_path, before=[EMULATOR], program=foreign) as init:
        init.process.send_signal(signal.SIGTERM)
        assert init.exit_code() == 128 + signal.SIGTERM


def test_forwards_signals(foreign: Path, tmp_path: Path) -> None:
    with InitProcess(tmp_path, before=[EMULATOR], program=foreign) as init:
        init.hand_over(sys.executable, "-c", TAKES_SIGNALS)
        assert init.next_line() == "ready"
        [program] = children_of(init.pid)
        handle = os.pidfd_open(program)
        init.process.send_signal(signal.SIGTERM)
        assert init.next_line() == str(int(signal.SIGTERM))
    with os.fdopen(handle):
        assert select.select([handle], [], [], PATIENCE)[0], "the program goes on"


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_needs_no_loader(foreign: Path, architecture: str) -> None:
    path = foreign.parents[1] / architecture / foreign.name
    assert init_program(path, architecture).data
    shown = subprocess.run(
        ["readelf", "--wide", "--program-headers", "--relocs", path],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    ).stdout
    assert "no relocations" in shown
    assert "INTERP" not in shown
    segments = [line.split() for line in shown.splitlines() if " 0x0" in line]
    modes = [(segment[0], "".join(segment[6:-1])) for segment in segments]
    assert ("GNU_STACK", "RW") in modes
    assert not [mode for _, mode in modes if "W" in mode and "E" in mode]
