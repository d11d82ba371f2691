"""A host that an operator enrols; procedures of docs/operations.md on it, while sessions play."""

import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo_game import Image
from tests.docker.operated_host import (
    Enrolled,
    an_enrolled_host,
    an_operated_host,
    assert_played,
    identity_of,
    play,
)
from tests.docker.procedures import Shell
from tests.docker.remote_hosts import SHORT_TIMEOUTS
from tests.docker.stack import eventually, play_round
from tests.support.deployment import PATIENT, REGION

pytestmark = pytest.mark.slow

SOON_LOST = pytest.mark.parametrize("stack", [{"lost_after": 15.0}], indirect=True, ids=["lost"])


@pytest.fixture
def stack(
    docker_engine: Path, demo_image: Image, request: pytest.FixtureRequest
) -> Iterator[Enrolled]:
    settings = {**PATIENT, **SHORT_TIMEOUTS, **getattr(request, "param", {})}
    with an_operated_host(docker_engine, demo_image, **settings) as stack:
        yield stack


def takes_sessions(stack: Enrolled) -> bool:
    """Try to start a session; 404: no host that serves is known to have the tag."""
    answer = stack.try_to_start()
    assert answer.status in {201, 404, 420}, answer.status
    return answer.status == 201


def test_a_host_is_emptied(stack: Enrolled, shell: Shell) -> None:
    places = play(stack, "match-1", "match-2")
    with shell.procedure("Draining a host") as procedure:
        shown = procedure.type("tiltyard-controlplane agent drain")
        assert re.search(r"SESSIONS +2\nDRAINING +yes, until", shown), shown
        assert not takes_sessions(stack)
        shown = procedure.type("tiltyard-controlplane agent undrain")
        assert re.search(r"DRAINING +no", shown), shown
        eventually(lambda: takes_sessions(stack), "it takes sessions again")
        output = procedure.type("tiltyard-agent drain")
        assert "The host is empty by " in output
        assert "match-2" in output
        eventually(lambda: not takes_sessions(stack), "the drain has arrived")
        assert_played(places)
        procedure.type("tiltyard-agent undrain")
        eventually(lambda: takes_sessions(stack), "it takes sessions again")
    assert_played(places)


@SOON_LOST
def test_lost_host_is_replaced(stack: Enrolled, shell: Shell) -> None:
    play(stack, "match-1")
    stack.agent.kill()
    stack.until("match-1", "dead")
    with shell.procedure("Lost hosts") as procedure:
        assert "lost" in procedure.type("tiltyard-controlplane agent show")
        assert "match-1" in procedure.type("tiltyard-controlplane session list")
        procedure.type("tiltyard-controlplane agent remove")
        assert "host-1" not in stack.operator.run("agent", "list")
        procedure.type("tiltyard-controlplane agent token")
        stack.agent.start()  # as the replacement machine
        assert "enrolled as host-1" in procedure.type("tiltyard-agent enrol")
    eventually(stack.is_ready, "the host is ready")
    eventually(lambda: not any(stack.pids().values()), "what it ran was given up, and is ended")
    eventually(lambda: takes_sessions(stack), "it takes sessions")


def test_the_authority_is_rotated(stack: Enrolled, shell: Shell) -> None:
    places = play(stack, "match-1")
    pids = stack.pids()
    before = identity_of(stack.agent)
    with shell.procedure("Rotating the authority") as procedure:
        assert "FORMER" in procedure.type("tiltyard-controlplane authority rotate")

        def have_moved() -> bool:
            output = stack.operator.run("authority", "status")
            return "HOSTS    1 of 1 are with the current one" in output

        eventually(have_moved, "the host has moved")
        assert "FORMER" in procedure.type("tiltyard-controlplane authority status")
        assert "FORMER" not in procedure.type("tiltyard-controlplane authority finish")
        moved = identity_of(stack.agent)
        assert before.authority not in moved.trusted
        procedure.type("tiltyard-controlplane backup")
        places |= play(stack, "match-2")
        # And now it is stolen.
        assert "enrol it again" in procedure.type("tiltyard-controlplane authority rotate --comp")
        stack.until("match-1", "server_unreachable")
        procedure.type("tiltyard-controlplane agent token")
        assert "enrolled as host-1" in procedure.type("tiltyard-agent enrol")
        eventually(stack.is_ready, "the host is ready")
        assert "HOSTS    1 of 1" in procedure.type("tiltyard-controlplane authority status")
    assert moved.authority not in identity_of(stack.agent).trusted
    stack.until("match-1", "running")
    assert_played(places)
    assert pids.items() <= stack.pids().items(), "no session was touched"
    play(stack, "match-3")


def test_a_host_joins_plays_and_is_revoked(docker_engine: Path, demo_image: Image) -> None:
    with an_enrolled_host(docker_engine, demo_image, **PATIENT) as stack:
        assert "enrolled as host-1 in region local" in stack.enrol("--region", REGION)
        eventually(stack.is_ready, "the enrolled host is ready")
        stack.make_game()
        made = stack.start(id="match")
        play_round(made)

        for program in (stack.control_plane, stack.agent):
            program.restart()
            eventually(stack.is_ready, "the host is ready again")
        play_round(made)
        assert stack.status("match") == "running"

        assert "host-1" in stack.enrol("--agent", "host-1")
        eventually(stack.is_ready, "the host is ready by its new name")
        assert stack.status("match") == "running"

        stack.operator.run("agent", "revoke", "host-1", "--yes")
        assert stack.status("match") == "dead"
        assert "revoked" in stack.operator.run("agent", "list")
        assert stack.try_to_start().status in {404, 420}

        for secret in (
            stack.agent.state_dir / "identity.pem",
            stack.control_plane.state_dir / "authority.pem",
        ):
            assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        logs = stack.agent.process.log.read_text() + stack.control_plane.process.log.read_text()
        assert "PRIVATE KEY" not in logs
        assert "Traceback" not in logs
