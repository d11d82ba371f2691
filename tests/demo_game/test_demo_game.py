"""The demo game as a process of this machine: no Docker, ports of its own."""

import fcntl
import itertools
import json
import re
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.demo_game import compile_game
from tests.demo_game.player import udp_round_trip
from tests.docker.stack import eventually
from tests.support.harness import free_port

PATIENCE = 20.0
"""Seconds in which the game must have done what it was asked; a bound for what is broken."""

LINE = re.compile(r"(\d{6,}) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (.+)\n")


class Game:
    """A running game, its ports and its folder."""

    def __init__(self, folder: Path, *args: str) -> None:
        self.udp, self.tcp = free_port(), free_port()
        environment = {
            "TILTYARD_SESSION_ID": 'a "quoted" \\ id',
            "TILTYARD_PORT_UDP_7777": str(self.udp),
            "TILTYARD_PORT_TCP_7778": str(self.tcp),
        }
        self.process = subprocess.Popen(
            [compile_game(), "--ports-from-env", "--data", folder, *args],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.stdout = self.process.stdout

    def line(self) -> str:
        """Return what the next line of its log says, after the number and the time."""
        found = LINE.fullmatch(self.stdout.readline())
        assert found is not None
        return found[3]

    def flood(self) -> list[str]:
        """Return all lines before the one that says that a flood is over."""
        return list(itertools.takewhile(lambda line: "flood over" not in line, self.stdout))

    def unread(self) -> int:
        """Bytes that its log's pipe holds."""
        counted = fcntl.ioctl(self.stdout, termios.FIONREAD, bytes(4))
        return int.from_bytes(counted, sys.byteorder)

    def terminate(self) -> int:
        """Send SIGTERM, wait for the end and return the exit code."""
        self.process.terminate()
        return self.process.wait(PATIENCE)


@contextmanager
def game(folder: Path, *args: str) -> Iterator[Game]:
    running = Game(folder, *args)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.communicate()


def test_echoes_every_datagram_as_it_is(tmp_path: Path) -> None:
    with game(tmp_path) as playing:
        udp_round_trip("127.0.0.1", playing.udp)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as player:
            player.settimeout(PATIENCE)
            for payload in (b"", b"\x00\xff" * 600, b"x" * 65507):
                player.sendto(payload, ("127.0.0.1", playing.udp))
                assert player.recv(65536) == payload


def test_sigterm_prints_saves_and_ends_with_zero(tmp_path: Path) -> None:
    with game(tmp_path) as playing:
        udp_round_trip("127.0.0.1", playing.udp)
        assert playing.terminate() == 0
        log = playing.stdout.readlines()
        assert log[-1].endswith(" SIGTERM: saving\n")
        saved = json.loads((tmp_path / "save.json").read_text())
        assert saved["session"] == 'a "quoted" \\ id'
        assert saved["lines"] == len(log)
        assert saved["datagrams"] >= 1
        assert [path.name for path in tmp_path.iterdir()] == ["save.json"]


def test_saves_although_nobody_reads_its_log(tmp_path: Path) -> None:
    with game(tmp_path, "--flood", "0") as playing:
        assert playing.line() == "demo game starts"
        # Of the pages of a full pipe one may have been read in part.
        almost = fcntl.fcntl(playing.stdout, fcntl.F_GETPIPE_SZ) * 7 // 8
        eventually(lambda: playing.unread() > almost, "nobody reads")
        assert playing.terminate() == 0
        saved = json.loads((tmp_path / "save.json").read_text())
        assert saved["lines"] == 1 + len(playing.stdout.readlines())


def test_floods_its_log_at_each_signal(tmp_path: Path) -> None:
    flood = ("--flood", "0", "--flood-bytes", "1280", "--flood-at-signal")
    with game(tmp_path, *flood, "--lines-per-second", "0") as playing:
        assert [playing.line() for _ in range(2)] == ["demo game starts", "ports open"]
        for _ in range(2):
            playing.process.send_signal(signal.SIGUSR1)
            told, *lines = playing.flood()
            assert told.endswith(" SIGUSR1: nothing\n")
            assert len([line for line in lines if " flood ." in line]) == len(lines) == 10


@pytest.mark.parametrize(
    "args",
    [["--unknown"], ["--exit-after"], ["--exit-after", "soon"], ["extra"], ["--write-file", "/x"]],
)
def test_refuses_wrong_arguments(args: list[str]) -> None:
    done = subprocess.run(
        [compile_game(), *args], capture_output=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 2
    assert done.stderr.startswith(b"usage: game")
