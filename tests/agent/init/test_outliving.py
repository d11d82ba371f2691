"""What an init does that was asked to outlive its program, as in a stop."""

import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest

from agent.init.messages import WAIT_FOR_ALL, Ended, Executed
from tests.support.agent.init_process import NEW_PIDS, InitProcess, children_of
from tests.support.harness import wait_until

SAVES = """
    import signal, sys
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    print("up", flush=True)
    signal.sigwait({signal.SIGTERM})
    print("saved", flush=True)
"""
"""A game behind a script that does not `exec`: it ends by SIGTERM once it has saved."""


def _behind_a_script(init: InitProcess) -> tuple[int, int]:
    """Start a game behind a script; returns the process ids of both."""
    program = textwrap.dedent(SAVES)
    init.hand_over("sh", "-c", '"$0" -c "$1" & wait', sys.executable, program)
    assert init.next_report() == Executed()
    assert init.next_line() == "up"
    [script] = children_of(init.pid)
    [game] = children_of(script)
    return script, game


@pytest.mark.root
def test_outlives_its_program_once_an_agent_asks_for_it(tmp_path: Path) -> None:
    with InitProcess(tmp_path, before=NEW_PIDS) as init:
        script, game = _behind_a_script(init)
        init.send(WAIT_FOR_ALL)
        os.kill(script, signal.SIGTERM)
        wait_until(lambda: children_of(init.pid) == [game], "the script is buried")
        init.send(signal.SIGTERM)  # for nobody: the program has ended
        os.kill(game, signal.SIGTERM)
        assert init.output() == "saved\n"
        ended = init.next_report()
        assert isinstance(ended, Ended)
        assert ended.status == signal.SIGTERM
        assert init.exit_code() == 128 + signal.SIGTERM


@pytest.mark.root
def test_ends_as_usual_if_nothing_is_left(tmp_path: Path) -> None:
    with InitProcess(tmp_path, before=NEW_PIDS) as init:
        init.hand_over("sh", "-c", "read line; exit 5")
        init.send(WAIT_FOR_ALL)
        init.end_input()
        assert init.exit_code() == 5


@pytest.mark.root
def test_processes_of_a_container_cannot_ask_it_to_outlive_its_program(tmp_path: Path) -> None:
    with InitProcess(tmp_path, before=NEW_PIDS) as init:
        init.hand_over("sh", "-c", f"sleep 1000 & kill -{WAIT_FOR_ALL} 1; wait")
        assert init.exit_code() == 128 + WAIT_FOR_ALL  # it was forwarded, and ended all


@pytest.mark.root
def test_a_request_to_outlive_a_program_ends_no_wait(tmp_path: Path) -> None:
    with InitProcess(tmp_path, before=NEW_PIDS) as init:
        init.send(WAIT_FOR_ALL)
        init.hand_over("sh", "-c", "exit 5")
        assert init.exit_code() == 5
