"""An agent that is told to stop while its engine hangs, or its own parts do."""

import select
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.harness import AgentProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

HUNG = """
import asyncio, sys
from agent.app import daemon
from agent.cli import main, serve

async def hang(name, close):
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue

daemon._bounded = hang
serve.STOP_SECONDS = 1.0
main.main(sys.argv[4:])
"""
"""Runs what follows as `python -m agent …`, with parts that never let go."""


@pytest.fixture
def silent_engine(tmp_path: Path) -> Iterator[socket.socket]:
    """A socket where calls are taken and none is answered, as dockerd's after SIGSTOP."""
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        path.chmod(0o660)
        server.listen(128)
        server.settimeout(60)
        yield server


def path_of(engine: socket.socket) -> Path:
    return Path(engine.getsockname())


def call_under_way(engine: socket.socket) -> socket.socket:
    """Accept a call that waits for its answer; those given up before are passed over.

    The agent asks once before it serves, and goes on without an answer.
    """
    while True:
        call, _ = engine.accept()
        ended = select.poll()
        ended.register(call, select.POLLHUP)
        if not ended.poll(0):
            return call
        call.close()


def test_an_agent_that_stops_does_not_wait_for_an_engine_that_hangs(
    silent_engine: socket.socket,
) -> None:
    with AgentProcess(path_of(silent_engine)) as agent:
        with call_under_way(silent_engine):
            agent.process.stop()  # fails unless it ends well, and soon
        said = agent.process.tail(100)
        assert "a part did not stop in time" in said
        assert "part=engine" in said
        assert "not waiting for threads" in said


def test_a_stop_that_takes_too_long_is_cut_off_with_a_word_on_every_thread(
    silent_engine: socket.socket,
) -> None:
    agent = AgentProcess(path_of(silent_engine))
    agent.wrapper = [sys.executable, "-c", HUNG]
    with pytest.raises(RuntimeError, match="ended with 1") as error, agent:
        pass
    assert "most recent call first" in str(error.value)
