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
"""Runs its arguments as `python -m agent …`, with components that never stop."""


@pytest.fixture
def hung_engine(tmp_path: Path) -> Iterator[socket.socket]:
    """A socket that accepts calls and never answers, like dockerd after SIGSTOP."""
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        path.chmod(0o660)
        server.listen(128)
        server.settimeout(60)
        yield server


def call_under_way(engine: socket.socket) -> socket.socket:
    """Accept a pending call; skip the one that the agent abandons before it serves."""
    while True:
        call, _ = engine.accept()
        ended = select.poll()
        ended.register(call, select.POLLHUP)
        if not ended.poll(0):
            return call
        call.close()


def test_shutdown_does_not_wait_for_hung_engine(hung_engine: socket.socket) -> None:
    with AgentProcess(Path(hung_engine.getsockname())) as agent:
        with call_under_way(hung_engine):
            agent.process.stop()  # fails unless it exits with 0 in time
        output = agent.process.tail(100)
        for text in ("component did not stop in time", "part=engine", "not waiting for threads"):
            assert text in output


def test_slow_shutdown_dumps_stacks_and_exits(hung_engine: socket.socket) -> None:
    agent = AgentProcess(Path(hung_engine.getsockname()))
    agent.wrapper = [sys.executable, "-c", HUNG]
    with pytest.raises(RuntimeError, match="ended with 1") as error, agent:
        pass
    assert "most recent call first" in str(error.value)
