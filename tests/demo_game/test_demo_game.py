"""The demo game as a process of this machine: what no test on Docker would show by its failure."""

import fcntl
import json
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.demo_game import compiled
from tests.demo_game.player import udp_round_trip
from tests.docker.stack import PATIENCE, eventually
from tests.support.harness import free_port

SESSION = 'a "quoted" \\ id'


@contextmanager
def game(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run the game; yield its process and its UDP port."""
    port = free_port()
    ports = {"TILTYARD_PORT_UDP_7777": str(port), "TILTYARD_PORT_TCP_7778": str(free_port())}
    with subprocess.Popen(
        [str(compiled()), "--ports-from-env", "--data", str(folder), *options],
        env={"TILTYARD_SESSION_ID": SESSION, **ports},
        stdout=subprocess.PIPE,
    ) as process:
        try:
            yield process, port
        finally:
            process.kill()


def log_of(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdout is not None
    return process.stdout


def saved_in(folder: Path) -> Any:
    assert [path.name for path in folder.iterdir()] == ["save.json"]
    return json.loads((folder / "save.json").read_text())


def test_sigterm_saves_and_ends_with_zero(tmp_path: Path) -> None:
    with game(tmp_path) as (process, port):
        udp_round_trip("127.0.0.1", port)
        process.terminate()
        assert process.wait(PATIENCE) == 0
        lines = log_of(process).readlines()
    assert lines[-1].endswith(b" SIGTERM: saving\n")
    saved = saved_in(tmp_path)
    assert saved["session"] == SESSION
    assert saved["lines"] == len(lines)


def test_sigterm_saves_although_nobody_reads_the_log(tmp_path: Path) -> None:
    with game(tmp_path, "--flood", "0") as (process, _):
        pipe = log_of(process).fileno()

        def unread() -> int:
            counted = fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))
            return int.from_bytes(counted, sys.byteorder)

        # Of the pages of a full pipe one may have been read in part.
        almost = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) * 7 // 8
        eventually(lambda: unread() > almost, "the pipe is full")
        process.terminate()
        assert process.wait(PATIENCE) == 0
        lines = log_of(process).readlines()
    saved = saved_in(tmp_path)
    assert saved["session"] == SESSION
    assert saved["lines"] == len(lines)
