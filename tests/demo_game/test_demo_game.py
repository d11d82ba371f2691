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
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.demo_game import compile_game
from tests.demo_game.player import tcp_greeting, udp_round_trip
from tests.docker.stack import eventually
from tests.support.harness import free_port

PATIENCE = 20.0
"""Seconds in which the game must have done what it was asked; a bound for what is broken."""

LINE = re.compile(r"(\d{6,}) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (.+)\n")


class Game:
    """A running game, its ports and its folder."""

    def __init__(self, folder: Path, *args: str, ports: bool = True) -> None:
        self.udp, self.tcp, self.folder = free_port(), free_port(), folder
        environment = {
            "TILTYARD_SESSION_ID": 'a "quoted" \\ id',
            "TILTYARD_PORT_UDP_7777": str(self.udp),
            "TILTYARD_PORT_TCP_7778": str(self.tcp),
        }
        self.begin = time.monotonic()
        self.process = subprocess.Popen(
            [compile_game(), "--ports-from-env", "--data", folder, *args],
            env=environment if ports else {},
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

    def end(self) -> int:
        """Wait for the end and return the exit code, below zero by a signal."""
        return self.process.wait(PATIENCE)

    def terminate(self) -> int:
        """Send SIGTERM, wait for the end and return the exit code."""
        self.process.terminate()
        return self.end()


@contextmanager
def game(folder: Path, *args: str, ports: bool = True) -> Iterator[Game]:
    running = Game(folder, *args, ports=ports)
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


def test_answers_a_connection_with_a_line_and_echoes(tmp_path: Path) -> None:
    with game(tmp_path) as playing:
        assert tcp_greeting("127.0.0.1", playing.tcp) == 'demo game a "quoted" \\ id'
        with socket.create_connection(("127.0.0.1", playing.tcp), PATIENCE) as player:
            stream = player.makefile("rwb", buffering=0)
            stream.readline()
            stream.write(b"hello\n")
            assert stream.readline() == b"hello\n"


def test_serves_many_connections_and_closes_one_too_many(tmp_path: Path) -> None:
    with game(tmp_path) as playing:
        tcp_greeting("127.0.0.1", playing.tcp)
        players = [
            socket.create_connection(("127.0.0.1", playing.tcp), PATIENCE) for _ in range(80)
        ]
        lines = [player.makefile("rb").readline() for player in players]
        for player in players:
            player.close()
        assert sum(1 for line in lines if line) == 64
        assert tcp_greeting("127.0.0.1", playing.tcp)


def test_prints_numbered_lines_with_the_time_from_the_start(tmp_path: Path) -> None:
    with game(tmp_path, "--lines-per-second", "50") as playing:
        lines = [LINE.fullmatch(playing.stdout.readline()) for _ in range(12)]
        found = [line for line in lines if line]
        assert [int(line[1]) for line in found] == list(range(1, 13))
        assert [line[3] for line in found[:3]] == ["demo game starts", "ports open", "tick"]
        times = [line[2] for line in found]
        assert times == sorted(times)


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


def test_exits_after_a_time_with_a_code(tmp_path: Path) -> None:
    with game(tmp_path, "--exit-after", "0.3", "--exit-code", "42") as playing:
        assert playing.end() == 42
        assert time.monotonic() - playing.begin >= 0.3
        assert playing.stdout.readlines()[-1].endswith(" exit 42\n")
        assert not (tmp_path / "save.json").exists()


def test_crashes_by_a_signal_each_time_it_is_started(tmp_path: Path) -> None:
    for _ in range(2):
        with game(tmp_path, "--crash-after", "0.1") as playing:
            assert playing.end() == -signal.SIGABRT


def test_ignores_sigterm(tmp_path: Path) -> None:
    with game(tmp_path, "--ignore-sigterm", "--lines-per-second", "0") as playing:
        udp_round_trip("127.0.0.1", playing.udp)
        playing.process.terminate()
        lines = [playing.line() for _ in range(4)]
        assert lines[2:] == ["first datagram", "SIGTERM ignored"]
        udp_round_trip("127.0.0.1", playing.udp)
        assert playing.process.poll() is None
        assert not (tmp_path / "save.json").exists()


def test_writes_files_of_a_size(tmp_path: Path) -> None:
    large, empty = tmp_path / "large", tmp_path / "empty"
    with game(
        tmp_path, "--write-file", str(large), "700001", "--write-file", str(empty), "0"
    ) as playing:
        lines = [playing.line() for _ in range(4)]
        assert lines[1:] == [f"wrote {large} 700001", f"wrote {empty} 0", "ports open"]
        assert large.read_bytes() == (bytes(range(251)) * 2789)[:700001]
        assert empty.read_bytes() == b""


def test_floods_its_log_at_a_rate(tmp_path: Path) -> None:
    flood = ("--flood", "1000000", "--flood-bytes", "500000", "--lines-per-second", "0")
    with game(tmp_path, *flood) as playing:
        log = playing.flood()
        assert time.monotonic() - playing.begin >= 0.49
    lines = [line for line in log if " flood " in line]
    assert sum(map(len, lines)) == pytest.approx(500_000, rel=0.001)
    assert {len(line) for line in lines} == {128}


def test_floods_as_fast_as_it_is_read_and_goes_on_echoing(tmp_path: Path) -> None:
    with game(tmp_path, "--flood", "0") as playing:
        log: list[str] = []
        reader = threading.Thread(target=log.extend, args=(playing.stdout,))
        reader.start()
        while len(log) < 20_000:
            udp_round_trip("127.0.0.1", playing.udp)
        assert playing.terminate() == 0
        reader.join(PATIENCE)
        assert [int(line.split()[0]) for line in log] == list(range(1, len(log) + 1))


def test_floods_its_log_up_to_a_size(tmp_path: Path) -> None:
    flood = ("--flood", "0", "--flood-bytes", "12800", "--lines-per-second", "0")
    with game(tmp_path, *flood) as playing:
        lines = playing.flood()
        assert playing.terminate() == 0
        [last] = playing.stdout.readlines()
    assert len([line for line in lines if " flood ." in line]) == 100
    assert last.endswith(" SIGTERM: saving\n")


def test_floods_its_log_at_each_signal(tmp_path: Path) -> None:
    flood = ("--flood", "0", "--flood-bytes", "1280", "--flood-at-signal")
    with game(tmp_path, *flood, "--lines-per-second", "0") as playing:
        assert [playing.line() for _ in range(2)] == ["demo game starts", "ports open"]
        for _ in range(2):
            playing.process.send_signal(signal.SIGUSR1)
            told, *lines = playing.flood()
            assert told.endswith(" SIGUSR1: nothing\n")
            assert len([line for line in lines if " flood ." in line]) == len(lines) == 10


def test_opens_its_ports_late(tmp_path: Path) -> None:
    with game(tmp_path, "--open-port-late", "0.5") as playing:
        udp_round_trip("127.0.0.1", playing.udp)
        assert time.monotonic() - playing.begin >= 0.5
        assert tcp_greeting("127.0.0.1", playing.tcp)


def test_says_which_port_it_cannot_bind(tmp_path: Path) -> None:
    with game(tmp_path) as playing:
        udp_round_trip("127.0.0.1", playing.udp)
        environment = {
            "TILTYARD_PORT_UDP_7777": str(playing.udp),
            "TILTYARD_PORT_TCP_7778": str(playing.tcp),
        }
        second = subprocess.run(
            [compile_game(), "--ports-from-env"],
            env=environment,
            capture_output=True,
            check=False,
            timeout=PATIENCE,
        )
    assert second.returncode == 1
    assert second.stderr == b"game: cannot bind the UDP port: Address already in use\n"


def test_needs_the_ports_in_its_environment_when_told_so(tmp_path: Path) -> None:
    with game(tmp_path, ports=False) as playing:
        assert playing.end() == 1


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


def test_is_one_static_program() -> None:
    assert b"/ld-linux" not in compile_game().read_bytes()[:4096]
