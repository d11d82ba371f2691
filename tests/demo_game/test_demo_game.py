"""The demo game as a process of this machine: what no test on Docker would show by its failure."""

import fcntl
import json
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.demo_game import compiled
from tests.demo_game.player import udp_round_trip
from tests.docker.stack import PATIENCE, eventually
from tests.support.harness import free_port


@pytest.mark.parametrize("reads", [True, False])
def test_sigterm_saves_and_ends_with_zero_with_or_without_a_reader(
    tmp_path: Path, *, reads: bool
) -> None:
    port = free_port()
    ports = {"TILTYARD_PORT_UDP_7777": str(port), "TILTYARD_PORT_TCP_7778": str(free_port())}
    command = [str(compiled()), "--ports-from-env", "--data", str(tmp_path)]
    with subprocess.Popen(
        [*command, *([] if reads else ["--flood", "0"])],
        env={"TILTYARD_SESSION_ID": 'a "quoted" \\ id', **ports},
        stdout=subprocess.PIPE,
    ) as game:
        assert game.stdout is not None
        try:
            if reads:
                udp_round_trip("127.0.0.1", port)
            else:
                pipe = game.stdout.fileno()

                def unread() -> int:
                    return int.from_bytes(
                        fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder
                    )

                # Of the pages of a full pipe one may have been read in part.
                almost = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) * 7 // 8
                eventually(lambda: unread() > almost, "the pipe is full")
            game.terminate()
            assert game.wait(PATIENCE) == 0
        finally:
            game.kill()
        log = game.stdout.readlines()
    saved = json.loads((tmp_path / "save.json").read_text())
    assert saved["session"] == 'a "quoted" \\ id'
    assert saved["lines"] == len(log)
    assert not reads or log[-1].endswith(b" SIGTERM: saving\n")
    assert [path.name for path in tmp_path.iterdir()] == ["save.json"]
