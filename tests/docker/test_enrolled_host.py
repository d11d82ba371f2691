"""Both programs as processes with mutual TLS, set up like by an operator."""

import stat
from pathlib import Path

import pytest

from tests.demo_game import Image
from tests.docker.operated_host import an_enrolled_host
from tests.docker.stack import eventually, play_round
from tests.support.deployment import PATIENT, REGION

pytestmark = pytest.mark.slow


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

        stack.operate("agent", "revoke", "host-1", "--yes")
        assert stack.status("match") == "dead"
        assert "revoked" in stack.operate("agent", "list")
        assert stack.try_to_start().status in {404, 420}

        for secret in (
            stack.agent.state_dir / "identity.pem",
            stack.control_plane.state_dir / "authority.pem",
        ):
            assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        logs = stack.agent.process.log.read_text() + stack.control_plane.process.log.read_text()
        assert "PRIVATE KEY" not in logs
        assert "Traceback" not in logs
