"""The procedures of docs/operations.md for a lost database, while sessions play."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo_game import Image
from tests.docker.operated_host import Enrolled, an_operated_host, assert_played, play
from tests.docker.procedures import Shell, commands
from tests.docker.stack import eventually
from tests.support.deployment import PATIENT

pytestmark = pytest.mark.slow


@pytest.fixture
def stack(docker_engine: Path, demo_image: Image) -> Iterator[Enrolled]:
    with an_operated_host(docker_engine, demo_image, **PATIENT) as stack:
        yield stack


def is_known(stack: Enrolled, session_id: str) -> bool:
    answer = stack.client.get(f"/session/{session_id}")
    return answer.status == 200 and bool(answer.json()["status"] == "running")


def test_database_is_restored_while_sessions_play(stack: Enrolled, shell: Shell) -> None:
    places = play(stack, "before", "stopped")
    printed = shell.type(commands("Backup"))
    assert "ticket.key" in printed[-1]
    assert (shell.folder / "tiltyard.backup").stat().st_mode & 0o777 == 0o600
    places |= play(stack, "since")
    stack.end("stopped")
    del places["stopped"]
    pids = stack.pids()

    printed = shell.type(commands("With a backup"))
    assert "restored the backup of" in printed[1]
    assert "account studio: ty_" in printed[2]
    assert "host-1" in printed[4]
    eventually(stack.is_ready, "the host is ready")
    eventually(
        lambda: all(is_known(stack, session_id) for session_id in places), "its sessions are known"
    )
    stack.until("stopped", "exited")
    assert_played(places)
    assert stack.pids() == pids, "no session was touched"
    places |= play(stack, "after")
    for session_id in places:
        stack.end(session_id)


def test_lost_database_is_rebuilt_from_the_hosts(stack: Enrolled, shell: Shell) -> None:
    places = play(stack, "one", "two")
    pids = stack.pids()
    printed = shell.type(commands("Without a backup, with the keys"))
    read_tokens(stack, shell)
    assert "enrolled as host-1" in printed[-2]
    eventually(stack.is_ready, "the host is ready")
    eventually(
        lambda: all(is_known(stack, session_id) for session_id in places), "its sessions are known"
    )
    assert_played(places)
    assert stack.pids() == pids, "no session was touched"
    stack.make_game()
    play(stack, "three")
    stack.end("one")


def test_sessions_without_a_database_continue_and_can_be_ended_by_hand(
    stack: Enrolled, shell: Shell
) -> None:
    places = play(stack, "match-1", "match-2")
    stop, _, *again = commands("Without a backup, with the keys")
    shell.type([stop])
    shutil.rmtree(stack.control_plane.state_dir)
    shell.type(again)
    read_tokens(stack, shell)
    eventually(stack.is_ready, "the host is ready")
    shown, sessions, _ = shell.type(commands("Without a backup or keys"))
    assert re.search(r"UNCLAIMED +2", shown), shown
    assert "match-2" in sessions
    del places["match-1"]
    assert_played(places)
    stack.make_game()
    play(stack, "match-1")


def read_tokens(stack: Enrolled, shell: Shell) -> None:
    path = shell.folder / "tokens.json"
    assert path.stat().st_mode & 0o777 == 0o600
    made = json.loads(path.read_text())
    stack.control_plane.tokens |= made["accounts"]
    stack.control_plane.operator_token = made["operator_token"]
